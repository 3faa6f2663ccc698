"""The house: owns the bus, the processes and the scheduler, and carries between them. It decides nothing.

A message, a death or a timer comes in; the scheduler says what follows; the house does it.  What a message
means is in :mod:`supervisor.staffing`, :mod:`supervisor.requests`, :mod:`supervisor.fetching` and
:mod:`supervisor.calls`, one function each.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final

import msgspec

from protocol import ids, logs, wire
from protocol.admin import Answer, OptionValue, Stats
from protocol.endpoints import events, runs
from protocol.failures import Code, Failure, LemonbusError
from protocol.leases import LeaseEnded, LeaseUsed
from protocol.loop import Loop
from protocol.settings import Settings
from protocol.staff import Hello, Ping, Pong, WorkerGone
from protocol.surroundings import Surroundings
from protocol.work import Ask, Cancel, Grant, Granted, Idle, Idles, Refused, Unwanted
from supervisor.board import Limits
from supervisor.bus import Bus
from supervisor.downloads import Downloads
from supervisor.effects import Effect, Expect, Fetch, Kill, Note, Report, Send, Spawn, Tell
from supervisor.lifecycle import State
from supervisor.logbook import LogBook
from supervisor.models import Models
from supervisor.peers import Peers
from supervisor.processes import Child, Processes
from supervisor.restarts import Policy, Record
from supervisor.scheduler import Scheduler

TICK_S: Final = 0.25
PING_S: Final = 1.0
TELL_S: Final = 0.01

_LIGHT: Final = frozenset({Ask, Cancel, Idle, Idles, LeaseEnded, LeaseUsed, Pong, Unwanted})
"""Messages that move nothing on a settled board beyond what they say."""

log = logs.get()
Handler = Callable[["House", str, Any, bytes], None]
"""What a message means: the house, the peer that sent it, the message, its payload."""


class House:
    """Everything the supervisor holds."""

    def __init__(self, settings: Settings, surroundings: Surroundings, loop: Loop, listen_fd: int) -> None:
        """Take the runtime directory's lock and the listener as given; start nothing yet."""
        self.settings = settings
        self.surroundings = surroundings
        self.loop = loop
        self.listen_fd = listen_fd
        self.born = loop.now()
        self.models = Models(settings)
        self.logbook = LogBook(surroundings.boot, settings.log_retained)
        self.peers = Peers(settings.peer_silence)
        self.downloads = Downloads()
        self.processes = Processes(loop, surroundings)
        self.bus = Bus(loop, surroundings.runtime, surroundings.boot)
        policy = Policy(settings.backoff_first, settings.backoff_most, settings.breaker_deaths, settings.breaker_window)
        limits = Limits(
            settings.max_loaded_models,
            settings.queue_requests,
            settings.queue_bytes,
            settings.grace,
            policy,
            verbose=settings.log_level in ("debug", "trace"),
        )
        self.scheduler = Scheduler(limits, lambda: ids.peer_id("worker"))
        self.workers: dict[str, Child] = {}
        self.gateway: Child | None = None
        self.running_names: dict[str, str] = {}
        """What clients call a model that runs → its name: not looked up on the disk again."""
        self.options_after_fetch: dict[str, dict[str, OptionValue]] = {}
        """What a load request asked for while the model was still to be downloaded."""
        self.orders: dict[str, msgspec.Struct] = {}
        """What job processes that are being started are to do, by job."""
        self.stats = Stats()
        self.stats_by_model: dict[str, Stats] = {}
        self.on_quiet: Callable[[], None] = lambda: None
        """Called when a process has ended: the house may be empty now."""
        self.fetch: Callable[[str], None] = lambda _model: None
        self._grants: dict[str, list[Grant]] = {}
        """What gateways are still to be told, by gateway."""
        self._handlers: dict[type, Handler] = {}
        self._gateway_record = Record(Policy(0.1, 5.0, 10**6, 60.0))
        self._pings = itertools.count()
        self._own_calls = itertools.count(1)
        self._results: dict[int, Callable[[object], None]] = {}

    # ---- life ------------------------------------------------------------------------------------------------

    def open(self, handlers: Mapping[type, Handler]) -> None:
        """Take part in the bus, and start the gateway and the first spare worker."""
        self._handlers.update(handlers)
        self.bus.listen(self._received, self._logged, self._overflow)
        logs.attach(self._logged)
        self.loop.every(TICK_S, self.go_on)
        self.loop.every(PING_S, self._ping)
        self.loop.at_turn_end(self._spread_logs)
        self._start_gateway()
        self.go_on()

    def go_on(self) -> None:
        """Let the scheduler do what the present state allows, and do it."""
        while self.models.problems:
            log.warning("model files", problem=self.models.problems.pop(0))
        self.scheduler.go_on(self.loop.now())
        self.perform(self.scheduler.effects())

    def _start_gateway(self) -> None:
        """Start gunicorn with the listener that we keep, so that no connection is refused meanwhile."""
        if not self.scheduler.closing:
            extra = {"LEMONBUS_LISTEN_FD": str(self.listen_fd)}
            self.gateway = self.processes.start("gateway", "gateway", self._gateway_died, extra, [self.listen_fd])

    def _gateway_died(self, why: str) -> None:
        self.gateway = None
        if not self.scheduler.closing:
            self._gateway_record.load_failed(Failure(Code.INTERNAL, why), self.loop.now())
            pause = self._gateway_record.pause(self.loop.now())
            log.error("gateway died", why=why, restart_in=pause)
            self.loop.call_later(pause, self._start_gateway)
        self.on_quiet()

    def gateway_is_well(self) -> None:
        """Forgive the gateway its earlier deaths."""
        self._gateway_record.ready()

    def _ping(self) -> None:
        for peer in self.peers.silent(self.loop.now()):
            self.kill_peer(peer.id, "it does not answer")
        number = next(self._pings)
        for peer in self.peers.all():
            self.bus.send(peer.id, Ping(number))

    def _overflow(self, peer: str) -> None:
        self.kill_peer(peer, "it does not read")

    def kill_peer(self, peer: str, why: str) -> None:
        """End a peer's process; everything else follows from its death."""
        known = self.peers.get(peer)
        if known is not None:
            log.error("peer killed", peer=peer, role=known.role, peer_pid=known.pid, why=why)
            with contextlib.suppress(ProcessLookupError):
                os.kill(known.pid, signal.SIGKILL)

    # ---- logs ------------------------------------------------------------------------------------------------

    def _logged(self, record: bytes) -> None:
        self.logbook.append(record)

    def _spread_logs(self) -> None:
        for peer, batch in self.logbook.batches(self.bus.takes):
            self.bus.send(peer, batch)

    # ---- messages --------------------------------------------------------------------------------------------

    def _received(self, peer: str, message: Any, payload: bytes) -> None:
        known = self.peers.heard(peer, self.loop.now())
        handler = self._handlers.get(type(message))
        if handler is None or not (known or isinstance(message, Hello)):
            log.warning("unexpected message", peer=peer, message=type(message).__name__)
            return
        try:
            handler(self, peer, message, payload)
        except LemonbusError as problem:
            self.refuse(peer, getattr(message, "number", 0), problem.failure)
        except OSError as problem:
            # A disk may say anything at any time: that is the end of what was asked for, not of the house.
            log.exception("a message could not be handled", message=type(message).__name__, peer=peer)
            reason = f"the server could not do that: {problem.strerror or type(problem).__name__}"
            asked = getattr(message, "number", 0), getattr(message, "attempt", 0)
            self.bus.send(peer, Refused(*asked, Failure(Code.INTERNAL, reason, detail=str(problem))))
        if type(message) in _LIGHT:
            self.scheduler.go_on_unless_settled(self.loop.now())
            self.perform(self.scheduler.effects())
        else:
            self.go_on()

    def answer(self, peer: str, number: int, report: object) -> None:
        """Answer a call."""
        self.bus.send(peer, Answer(number), wire.pack(report))

    def refuse(self, peer: str, number: int, failure: Failure) -> None:
        """Refuse a call."""
        self.bus.send(peer, Refused(number, 0, failure))

    def call_self(self, done: Callable[[object], None]) -> int:
        """Return a number for a call of the house's own (peer ``""``); ``done`` gets its report or failure."""
        number = next(self._own_calls)
        self._results[number] = done
        return number

    def _own_result(self, number: int, result: object) -> None:
        done = self._results.pop(number, None)
        if done:
            done(result)

    # ---- effects ---------------------------------------------------------------------------------------------

    def perform(self, effects: list[Effect]) -> None:
        """Do what the scheduler wants done."""
        for effect in effects:
            match effect:
                case Send(peer, message, payload):
                    self._send(peer, message, payload)
                case Tell(gateway, grant):
                    self._tell(gateway, grant)
                case Report(peer, number, report):
                    self._report(peer, number, report)
                case Spawn(worker):
                    self._spawn(worker)
                case Kill(worker):
                    self._kill(worker)
                case Expect(worker, seconds):
                    self.loop.call_later(seconds, partial(self._kill, worker))
                case Fetch(model):
                    self.fetch(model)
                case Note(level, event, fields):
                    getattr(log, level)(event, **fields)

    def _send(self, peer: str, message: Any, payload: bytes) -> None:
        if peer:
            self.bus.send(peer, message, payload)
        elif isinstance(message, Refused):
            self._own_result(message.number, message.failure)

    def _tell(self, gateway: str, grant: Grant) -> None:
        """Off the path of the first token: what a worker sends says where it runs, too."""
        if not self._grants:
            self.loop.call_later(TELL_S, self._tell_all)
        self._grants.setdefault(gateway, []).append(grant)

    def _tell_all(self) -> None:
        grants, self._grants = self._grants, {}
        for gateway, its in grants.items():
            self.bus.send(gateway, Granted(its))

    def _report(self, peer: str, number: int, report: object) -> None:
        if peer:
            self.answer(peer, number, report)
        else:
            self._own_result(number, report)

    def _spawn(self, worker: str) -> None:
        died = partial(self._worker_died, worker)
        self.workers[worker] = self.processes.start("worker", "workers", died, {"LEMONBUS_PEER": worker})

    def _kill(self, worker: str) -> None:
        child = self.workers.get(worker)
        if child:
            self.processes.kill(child)

    def endpoint(self, worker: str) -> str:
        """Return where a worker publishes."""
        return events(self.surroundings.runtime, self.surroundings.boot, worker)

    def _worker_died(self, worker: str, why: str) -> None:
        self.workers.pop(worker, None)
        self.peers.remove(worker)
        self.bus.forget(worker)
        seat = self.scheduler.seats.get(worker)
        model = seat.place.name if seat and seat.place else ""
        # At the end of the grace it goes as it was told, with its model.
        goes = self.scheduler.closing and (not model or why == "exit 0")
        expected = seat is None or seat.state is State.STOPPING or goes
        of = {"model": model} if model else {}
        (log.info if expected else log.error)("worker gone", worker=worker, **of, why=why)
        failure = Failure(Code.WORKER_GONE, f"The worker of model {model} is gone ({why})", model=model)
        self._tell_all()
        for gateway in self.peers.of("gateway"):
            self.bus.send(gateway, WorkerGone(worker, self.endpoint(worker), failure))
        for endpoint in (self.endpoint(worker), runs(self.surroundings.runtime, self.surroundings.boot, worker)):
            Path(endpoint.removeprefix("ipc://")).unlink(missing_ok=True)
        self.scheduler.worker_gone(worker, failure, self.loop.now())
        self.go_on()
        self.on_quiet()
