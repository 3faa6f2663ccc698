"""Reads the lists of models of other servers (``[remotes.NAME]``), at the start and at regular intervals, in a job."""

from __future__ import annotations

from typing import Final

from protocol.config.settings import Settings
from protocol.failures import LemonbusError
from protocol.messages.remote_models import RemoteList, RemotesListed, StartRemoteListing
from protocol.runtime import logs
from protocol.runtime.loop import Loop
from supervisor.models.registry import ModelRegistry
from supervisor.runtime.handler_table import Handler
from supervisor.runtime.jobs import Jobs

MODULE: Final = "workers.jobs.list_remotes"

log = logs.get_logger()


class RemoteLists:
    """Keeps the lists up to date. A server that is away keeps the list that it had."""

    def __init__(self, settings: Settings, loop: Loop, models: ModelRegistry, jobs: Jobs) -> None:
        """Read nothing before :meth:`start`."""
        self._loop, self._models, self._jobs = loop, models, jobs
        self._refresh = {name: each.refresh for name, each in settings.remotes.items()}
        self._due = dict.fromkeys(self._refresh, loop.now())
        """Remote → when it is asked next."""
        self._problems: dict[str, str] = {}
        """Remote → why there is no new list."""
        self._asked: dict[str, str] = {}
        """Remote that has not answered yet → the job that asks it. It is not asked twice at the same time."""

    def start(self) -> None:
        """Begin with the first reading, if there are other servers."""
        if self._refresh:
            self._read()

    def handlers(self) -> dict[type, Handler]:
        """Return the handlers of these messages."""
        return {RemotesListed: self._listed}

    def problems(self) -> list[str]:
        """Return which lists are not up to date, as sentences."""
        return [
            f"remotes.{name}: {problem}; "
            + ("its last list is used" if self._models.remote.listed(name) else "none of its models are listed")
            for name, problem in self._problems.items()
        ]

    def _read(self) -> None:
        now = self._loop.now()
        due = [name for name, at in self._due.items() if at <= now]
        for name in due:
            self._due[name] = now + self._refresh[name]
        idle = [name for name in due if name not in self._asked]
        if idle:
            job = self._jobs.start(MODULE, self._ended, StartRemoteListing(idle))
            self._asked |= dict.fromkeys(idle, job)
        self._loop.call_later(max(0.1, min(self._due.values()) - now), self._read)

    def _listed(self, job: str, message: RemotesListed, _payload: bytes) -> None:
        for each in message.lists:
            # At its end, a job repeats lists that another job may have read again since.
            if self._asked.get(each.remote) == job:
                del self._asked[each.remote]
                self._take(each)
        if message.complete:
            self._jobs.dismiss(job)

    def _take(self, listed: RemoteList) -> None:
        name, problem = listed.remote, listed.problem
        if not problem:
            try:
                self._models.list_remote(name, listed.models)
            except LemonbusError as error:
                problem = error.failure.message
        if problem and self._problems.get(name) != problem:
            log.warning("the models of another server cannot be listed", remote=name, reason=problem)
        if problem:
            self._problems[name] = problem
        elif self._problems.pop(name, None):
            log.info("the models of another server are listed again", remote=name, models=len(listed.models))

    def _ended(self, job: str, why: str) -> None:
        self._asked = {name: asking for name, asking in self._asked.items() if asking != job}
        log.debug("a job that lists other servers' models has ended", job=job, reason=why)
