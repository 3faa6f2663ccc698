"""Looks at the file of API keys once a second: reports what is wrong with it, and keeps its last good content.

The gateways read the file themselves, at each request. Without requests they copy no keys, so the supervisor does.
"""

from __future__ import annotations

from typing import Final

from protocol.config.api_keys import ApiKey
from protocol.config.key_file import KeyFile
from protocol.config.settings import Settings
from protocol.messages.caller import Caller
from protocol.runtime import logs
from protocol.runtime.loop import Loop

CHECK_INTERVAL_S: Final = 1.0

log = logs.get_logger()


class KeyFileWatch:
    """Reports each problem of the file once in the log, and the present one in the server's health."""

    def __init__(self, loop: Loop, settings: Settings) -> None:
        """Look at once: the copy must exist before any gateway does."""
        self._file = KeyFile(settings)
        self._reported = ""
        self.check()
        loop.every(CHECK_INTERVAL_S, self.check)

    def check(self) -> None:
        """Look at the file."""
        self._file.refresh()
        problem = self._file.problem
        if problem == self._reported:
            return
        self._reported = problem
        if problem:
            log.error("the file of API keys cannot be used", file=str(self._file.path), reason=problem)
        else:
            log.info("the file of API keys is used again", file=str(self._file.path))

    @property
    def keys(self) -> list[ApiKey]:
        """The keys of the file, as of the last look at it."""
        return self._file.keys

    @property
    def exists(self) -> bool:
        """Whether there is, or was, a file: then callers need a key."""
        return self._file.exists

    def expiries(self) -> dict[str, float]:
        """Return name → when it expires, in Unix seconds, of each key that does."""
        return {key.name: key.expires for key in self._file.keys if key.expires}

    @property
    def problems(self) -> list[str]:
        """What is wrong with the file now and how to fix it, without its path."""
        self.check()
        if not self._file.problem:
            return []
        which = self._file.path.name
        if not self._file.keys:
            return [f"no key of the file of API keys is valid: {which}: {self._file.problem}"]
        cure = "the keys that were read last stay valid until it is repaired; the server cannot start with it"
        return [f"the file of API keys cannot be used: {which}: {self._file.problem}; {cure}"]

    @property
    def limited(self) -> list[Caller]:
        """The keys that have limits, as of the last look at the file."""
        callers = [Caller.of(key) for key in self._file.keys]
        return [caller for caller in callers if caller.limited]
