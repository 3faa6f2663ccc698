"""Processes that speak a version of the protocol that this supervisor does not understand: they finish their work.

A newer release may have taken over from an older one, or the installed files may have changed under this server. A few
messages have the same form in all versions. So such a process can say which model it has, and can be told to end when
its requests have ended. When a worker that was taken over has ended, its model is loaded again, with the options that
calls had asked for.

None is told to end before gateways of this release serve. If this supervisor dies before that, the other release goes
on with its processes, as if nothing had happened. Meanwhile, gateways only refuse new connections.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

from protocol.failures import Failure, LemonbusError
from protocol.messages.models import PolicyOverrides
from protocol.messages.peers import Hello, ModelInUse, PauseAccepting, Shutdown
from protocol.models.recipes import OptionValue
from protocol.runtime import logs
from protocol.runtime.loop import Loop
from supervisor.bus.sockets import SupervisorBus
from supervisor.processes.gateway_process import GatewayProcess
from supervisor.runtime.decisions import Decisions
from supervisor.runtime.internal_calls import InternalCalls
from supervisor.runtime.jobs import Jobs
from supervisor.runtime.messages import Messages
from supervisor.scheduler.inputs import ModelTarget
from supervisor.scheduler.scheduler import Scheduler

LONGEST_S: Final = 86_400.0
"""How long the requests of such a process may take."""

log = logs.get_logger()


class OtherVersions:
    """The processes of other versions. They end by themselves."""

    def __init__(
        self,
        loop: Loop,
        bus: SupervisorBus,
        gateway: GatewayProcess,
        jobs: Jobs,
        scheduler: Scheduler,
        decisions: Decisions,
        messages: Messages,
        resolve: Callable[[str, Mapping[str, OptionValue]], ModelTarget],
        internal_calls: InternalCalls,
    ) -> None:
        """There are none yet. ``resolve`` finds a model by its name, and raises if it cannot be loaded with such options."""
        self._loop, self._bus, self._gateway, self._jobs = loop, bus, gateway, jobs
        self._scheduler, self._decisions, self._messages = scheduler, decisions, messages
        self._resolve, self._internal_calls = resolve, internal_calls
        self._leaving: set[str] = set()
        """Those that are to leave. What else they say is not understood."""
        self._workers: dict[str, ModelInUse | None] = {}
        """Workers that were taken over and finish their requests → their models."""
        self._waiting: dict[str, Hello] = {}
        """Those that were taken over and have not been told to leave."""
        gateway.when_serving(self.tell_to_leave)

    @property
    def workers(self) -> list[str]:
        """The workers that were taken over and have not ended."""
        return list(self._workers)

    def models(self) -> list[str]:
        """Return the models of these workers."""
        return sorted({model.name for model in self._workers.values() if model is not None})

    # Processes that this server has started

    def hello(self, peer: str, hello: Hello) -> None:
        """A process that this server has started says Hello in another version."""
        if hello.role != "gateway":
            self.received(peer, hello.version)
            return
        if hello.node:
            self._bus.send(peer, Shutdown(0.0, "this server speaks another version of lemonbus"))
            return
        # Keep clients away from a gateway that cannot serve them. It leaves when another one can.
        log.warning("a gateway of another version takes no requests", gateway=peer, version=hello.version)
        self._leaving.add(peer)
        self._gateway.joined(hello, lambda _gateway: None)
        self._bus.send(peer, PauseAccepting())
        leave = Shutdown(0.0, "gateways of another version of lemonbus serve")
        self._gateway.when_serving(partial(self._bus.send, peer, leave))
        self._gateway.not_understood(peer)

    def received(self, peer: str, version: int) -> None:
        """A message came in another version: the installed lemonbus has changed under this server."""
        if peer in self._leaving:
            return
        self._scheduler.version_mismatch(peer, version, self._loop.now())
        self._jobs.kill(peer)
        self._decisions.reconcile()

    # Processes that were taken over

    def let_leave(self, peer: str, hello: Hello) -> None:
        """As soon as gateways of this release serve, tell a process that has said Hello to finish what runs, and to leave."""
        self._leaving.add(peer)
        if hello.role == "worker":
            self._workers[peer] = hello.model
        elif hello.role == "gateway":
            self._bus.send(peer, PauseAccepting())
            self._gateway.not_understood(peer)
        self._waiting[peer] = hello
        if self._gateway.serves or self._scheduler.view.closing:
            self.tell_to_leave()

    def tell_to_leave(self) -> None:
        """Tell those that wait for it to finish what runs, and to leave: others serve, or the server ends."""
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
            self._bus.send(peer, Shutdown(grace, "another version of lemonbus takes over"))

    def worker_ended(self, worker: str) -> None:
        """Load the model of a worker that was taken over again: the worker has ended."""
        model = self._workers.pop(worker, None)
        if model is not None and not self._scheduler.view.closing:
            self._messages.when_serving(partial(self._load, model))

    def _load(self, model: ModelInUse) -> None:
        loaded = partial(_loaded, model.name)
        try:
            target = self._resolve(model.name, model.asked)
        except LemonbusError as problem:
            loaded(problem.failure)
            return
        asked = PolicyOverrides(pinned=model.pinned, ttl=model.ttl)
        self._internal_calls.load(target._replace(asked=asked), loaded)
        self._decisions.reconcile()


def _loaded(model: str, result: object) -> None:
    if isinstance(result, Failure):
        log.error("model not loaded again after the upgrade", model=model, reason=result.message, detail=result.detail)
