"""Messages of the peers about themselves: Hello, results of checks and loads, lost engines; and ends of gateways."""

from __future__ import annotations

from functools import partial
from typing import Final

from protocol import UNDERSTOOD
from protocol.ids import RequestKey
from protocol.messages.peers import (
    EngineDied,
    EngineReady,
    Hello,
    LoadFailed,
    ModelChecked,
    PauseAccepting,
    Peer,
    Pong,
    Shutdown,
    WorkerUp,
)
from protocol.messages.recovery import GatewaySnapshot, JobSnapshot, WorkerSnapshot
from protocol.runtime import logs
from protocol.wire import envelope
from supervisor.processes import left_files
from supervisor.runtime import jobs
from supervisor.runtime.supervisor import Handler, Supervisor
from supervisor.scheduler.recovery.snapshots import is_consistent, join_snapshots, known_attempts

log = logs.get_logger()


def hello(supervisor: Supervisor, peer: str, message: Hello, payload: bytes) -> None:
    """Register a peer, and send it what it needs to begin. One that is already registered begins anew."""
    if message.boot != supervisor.process_context.boot or not _is_expected(supervisor, peer, message.role):
        supervisor.bus.send(peer, Shutdown(0.0, "this server did not start this process"))
        return
    if message.version not in UNDERSTOOD:
        if message.role == "gateway":
            _gateway_of_other_version(supervisor, peer, message)
        else:
            supervisor.other_version(peer, message.version)
        return
    known = supervisor.peers.get(peer) is not None
    supervisor.peers.add(Peer(message.role, peer, message.pid), supervisor.loop.now())
    supervisor.welcome(peer, message.role)
    if message.role == "worker":
        supervisor.workers.publishes_at(peer, message.endpoint)
        _worker_hello(supervisor, peer, payload, known=known)
    elif message.role == "gateway":
        _gateway_hello(supervisor, message, payload, known=known)
    elif not payload or not envelope.unpack_payload(payload, JobSnapshot).order:
        jobs.send_order(supervisor, peer)


def _worker_hello(supervisor: Supervisor, peer: str, payload: bytes, *, known: bool) -> None:
    if known and not _take_up_worker(supervisor, peer, envelope.unpack_payload(payload, WorkerSnapshot)):
        log.error("worker killed", worker=peer, why="messages to it were lost")
        supervisor.workers.kill(peer)
        return
    supervisor.scheduler.worker_reported(peer)
    for on_hello in supervisor.on_worker_hello:
        on_hello(peer)
    for gateway in supervisor.peers.of("gateway"):
        supervisor.bus.send(gateway, WorkerUp(peer, supervisor.workers.endpoint(peer)))


def _gateway_hello(supervisor: Supervisor, message: Hello, payload: bytes, *, known: bool) -> None:
    peer = message.id
    supervisor.gateway.joined(message, partial(gateway_gone, supervisor))
    supervisor.gateway.worker_up(peer)
    if known:
        _cancel_unwanted(supervisor, peer, envelope.unpack_payload(payload, GatewaySnapshot))
        supervisor.admission.gateway_reconnected(peer)
    for worker in supervisor.peers.of("worker"):
        supervisor.bus.send(peer, WorkerUp(worker, supervisor.workers.endpoint(worker)))


def _gateway_of_other_version(supervisor: Supervisor, peer: str, message: Hello) -> None:
    """Keep clients away from a gateway that cannot serve them. It leaves when another one can."""
    log.warning("a gateway of another version takes no requests", gateway=peer, version=message.version)
    supervisor.leaving_peers.add(peer)
    supervisor.gateway.joined(message, lambda _gateway: None)
    supervisor.bus.send(peer, PauseAccepting())
    leave = Shutdown(0.0, "gateways of another version of lemonbus serve")
    supervisor.gateway.when_serving(partial(supervisor.bus.send, peer, leave))
    supervisor.gateway.not_understood(peer)


def _is_expected(supervisor: Supervisor, peer: str, role: str) -> bool:
    if role == "worker":
        return supervisor.scheduler.view.worker(peer) is not None
    return role != "job" or peer in supervisor.job_processes


def _take_up_worker(supervisor: Supervisor, peer: str, snapshot: WorkerSnapshot) -> bool:
    """Continue with a worker whose last connection may have lost messages; return False if that is impossible."""
    now = supervisor.loop.now()
    world = join_snapshots({peer: snapshot}, {}, {peer: now})
    ended = known_attempts({peer: snapshot})
    return is_consistent(snapshot) and supervisor.scheduler.worker_reconnected(world.workers[0], ended, now)


def _cancel_unwanted(supervisor: Supervisor, peer: str, snapshot: GatewaySnapshot) -> None:
    """Cancel the attempts that a gateway no longer waits for: its cancels may be lost."""
    wanted = {RequestKey(peer, request.number, request.attempt) for request in snapshot.requests}
    for key in supervisor.scheduler.view.attempts_of_gateway(peer) - wanted:
        supervisor.admission.cancelled(key)
        supervisor.scheduler.request_cancelled(key, "its gateway does not wait for it any more")


def gateway_gone(supervisor: Supervisor, peer: str) -> None:
    """Forget a gateway that has ended, with everything that waits for it."""
    known = supervisor.peers.remove(peer)
    supervisor.bus.forget(peer)
    supervisor.logbook.forget_peer(peer)
    supervisor.downloads.forget(peer)
    supervisor.responses.gateway_gone(peer)
    supervisor.admission.gateway_gone(peer)
    supervisor.scheduler.gateway_gone(peer)
    left_files.remove_bodies(supervisor.process_context, peer)
    planned = supervisor.scheduler.view.closing or supervisor.gateway.is_replaced(peer)
    pid = known.pid if known else 0
    (log.info if planned else log.warning)("gateway worker gone", gateway=peer, gateway_pid=pid)
    supervisor.reconcile()


def pong(supervisor: Supervisor, peer: str, message: Pong, _payload: bytes) -> None:
    """Count the peer's programming errors. That the peer is alive was already noted, as for every message."""
    supervisor.errors.count += message.errors
    supervisor.worker_barrier.pong(peer, message.number)


def checked(supervisor: Supervisor, peer: str, message: ModelChecked, _payload: bytes) -> None:
    """A worker can load a model."""
    supervisor.scheduler.model_checked(peer, message.need, message.available)


def ready(supervisor: Supervisor, peer: str, message: EngineReady, _payload: bytes) -> None:
    """An engine answers."""
    supervisor.scheduler.engine_ready(peer, message, supervisor.loop.now())


def load_failed(supervisor: Supervisor, peer: str, message: LoadFailed, _payload: bytes) -> None:
    """A check or a start of an engine failed."""
    worker = supervisor.scheduler.view.worker(peer)
    spec = worker.spec if worker is not None else None
    failure = supervisor.models.specs.explained(spec, message.failure) if spec else message.failure
    supervisor.scheduler.load_failed(peer, failure, supervisor.loop.now())


def engine_died(supervisor: Supervisor, peer: str, message: EngineDied, _payload: bytes) -> None:
    """A worker lost its engine. The parts of its answers that clients have got are counted, then its grants end."""
    for each in message.unfinished:
        key = RequestKey(each.gateway, each.number, each.attempt)
        attempt = supervisor.scheduler.view.attempt_of_worker(peer, key)
        if attempt is not None:
            supervisor.metrics.generation_stopped(attempt.model, each.tokens)
            supervisor.admission.ended(attempt.caller, each.prompt_tokens + each.tokens)
    supervisor.scheduler.engine_died(peer, message.failure, supervisor.loop.now(), message.causes)


HANDLERS: Final[dict[type, Handler]] = {
    Hello: hello,
    Pong: pong,
    ModelChecked: checked,
    EngineReady: ready,
    LoadFailed: load_failed,
    EngineDied: engine_died,
}
