"""Messages of the peers about themselves: who comes, what a worker found out, who is gone."""

from __future__ import annotations

import os
from functools import partial
from typing import Final

from protocol import logs
from protocol.admin import Peer
from protocol.endpoints import spool
from protocol.staff import Checked, EngineDied, Hello, Leave, LoadFailed, Pong, Ready, Welcome, WorkerUp
from supervisor import jobs
from supervisor.house import Handler, House

log = logs.get()


def hello(house: House, peer: str, message: Hello, _payload: bytes) -> None:
    """Somebody is there."""
    expected = message.role != "worker" or peer in house.scheduler.seats
    if message.boot != house.surroundings.boot or not expected:
        house.bus.send(peer, Leave(0.0, "this house does not know you"))
        return
    house.peers.add(Peer(message.role, peer, message.pid), house.loop.now())
    house.bus.send(peer, Welcome(house.surroundings.boot, os.getpid()))
    if message.role == "worker":
        house.scheduler.hello(peer)
        for gateway in house.peers.of("gateway"):
            house.bus.send(gateway, WorkerUp(peer, house.endpoint(peer)))
    elif message.role == "gateway":
        house.gateway_is_well()
        house.loop.on_death(message.pid, partial(_gateway_gone, house, peer))
        for worker in house.peers.of("worker"):
            house.bus.send(peer, WorkerUp(worker, house.endpoint(worker)))
    else:
        jobs.begin(house, peer)


def _gateway_gone(house: House, peer: str) -> None:
    known = house.peers.remove(peer)
    house.bus.forget(peer)
    house.logbook.forget_peer(peer)
    house.downloads.forget(peer)
    house.scheduler.peer_gone(peer)
    for body in spool(house.surroundings.runtime).glob(f"{peer}-*"):
        body.unlink(missing_ok=True)
    (log.info if house.scheduler.closing else log.warning)(
        "gateway worker gone", gateway=peer, gateway_pid=known.pid if known else 0
    )
    house.go_on()


def pong(_house: House, _peer: str, _message: Pong, _payload: bytes) -> None:
    """It turns: that it was heard is all."""


def checked(house: House, peer: str, message: Checked, _payload: bytes) -> None:
    """A worker finds nothing against a model."""
    house.scheduler.checked(peer, message.need, message.available)


def ready(house: House, peer: str, message: Ready, _payload: bytes) -> None:
    """An engine answers."""
    house.scheduler.ready(peer, message, house.loop.now())


def load_failed(house: House, peer: str, message: LoadFailed, _payload: bytes) -> None:
    """A check or a start did not succeed."""
    house.scheduler.load_failed(peer, message.failure, message.started, house.loop.now())


def engine_died(house: House, peer: str, message: EngineDied, _payload: bytes) -> None:
    """A worker lost its engine."""
    house.scheduler.engine_died(peer, message.failure, house.loop.now())


HANDLERS: Final[dict[type, Handler]] = {
    Hello: hello,
    Pong: pong,
    Checked: checked,
    Ready: ready,
    LoadFailed: load_failed,
    EngineDied: engine_died,
}
