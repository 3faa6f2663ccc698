"""Processes that speak a version of the protocol that this supervisor does not understand: they finish their work.

A newer release may have taken over from an older one. A few messages have the same form in all versions. So such a
process can say which model it has, and can be told to end when its requests have ended. When a worker has ended, its
model is loaded again, with the options that calls had asked for.

None is told to end before gateways of this release serve. If this supervisor dies before that, the other release goes
on with its processes, as if nothing had happened. Meanwhile, gateways only refuse new connections.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from protocol.failures import Failure, LemonbusError
from protocol.messages.peers import Hello, ModelInUse, PauseAccepting, Shutdown
from protocol.runtime import logs
from supervisor.handlers.requests import resolve_target
from supervisor.runtime.supervisor import Supervisor
from supervisor.scheduler.policy import PolicyOverrides

LONGEST_S: Final = 86_400.0
"""How long the requests of such a process may take."""

log = logs.get_logger()


class OtherVersions:
    """The processes of other versions that were taken over. They end by themselves."""

    def __init__(self, supervisor: Supervisor) -> None:
        """There are none yet."""
        self._supervisor = supervisor
        self._workers = supervisor.former_workers
        self._waiting: dict[str, Hello] = {}
        """Those that have not been told to leave."""
        supervisor.on_worker_ended.append(self._worker_ended)
        supervisor.on_closing.append(self._tell_to_leave)
        supervisor.gateway.when_serving(self._tell_to_leave)

    @property
    def workers(self) -> list[str]:
        """The workers among them that have not ended."""
        return list(self._workers)

    def let_leave(self, peer: str, hello: Hello) -> None:
        """As soon as gateways of this release serve, tell a process that has said Hello to finish what runs, and to leave."""
        self._supervisor.leaving_peers.add(peer)
        if hello.role == "worker":
            self._workers[peer] = hello.model
        elif hello.role == "gateway":
            self._supervisor.bus.send(peer, PauseAccepting())
            self._supervisor.gateway.not_understood(peer)
        self._waiting[peer] = hello
        if self._supervisor.gateway.serves or self._supervisor.scheduler.view.closing:
            self._tell_to_leave()

    def _tell_to_leave(self) -> None:
        waiting, self._waiting = self._waiting, {}
        for peer, hello in waiting.items():
            context = {"model": hello.model.name} if hello.model else {}
            log.warning(
                "a process of another version ends with its last request",
                peer=peer,
                role=hello.role,
                version=hello.version,
                **context,
            )
            grace = 0.0 if hello.role == "job" else LONGEST_S
            self._supervisor.bus.send(peer, Shutdown(grace, "another version of lemonbus takes over"))

    def _worker_ended(self, worker: str) -> None:
        model = self._workers.pop(worker, None)
        if model is not None and not self._supervisor.scheduler.view.closing:
            self._supervisor.when_serving(partial(self._load, model))

    def _load(self, model: ModelInUse) -> None:
        supervisor = self._supervisor
        number = supervisor.internal_calls.begin(partial(_loaded, model.name))
        try:
            target = resolve_target(supervisor, model.name, model.asked)
        except LemonbusError as problem:
            supervisor.internal_calls.end(number, problem.failure)
            return
        asked = PolicyOverrides(pinned=model.pinned, ttl=model.ttl)
        supervisor.scheduler.load_requested("", number, target._replace(asked=asked), supervisor.loop.now())
        supervisor.reconcile()


def _loaded(model: str, result: object) -> None:
    if isinstance(result, Failure):
        log.error("model not loaded again after the upgrade", model=model, reason=result.message, detail=result.detail)
