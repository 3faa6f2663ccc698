"""The calls of :mod:`protocol.admin`, one function each: what a gateway asks beside inference."""

from __future__ import annotations

import math
import os
import time
from typing import Final

from msgspec import structs

from protocol import RELEASE, admin
from protocol.recipes import ModelType
from supervisor.house import Handler, House
from supervisor.places import Place


def list_models(house: House, peer: str, call: admin.ListModels, _payload: bytes) -> None:
    """Answer with the catalogue."""
    entries = [_with_state(house, entry) for entry in house.models.entries(call.show_all)]
    house.answer(peer, call.number, entries)


def get_model(house: House, peer: str, call: admin.GetModel, _payload: bytes) -> None:
    """Answer with one entry."""
    name = house.models.resolve(call.name).name
    house.answer(peer, call.number, _with_state(house, house.models.entry(name)))


def _with_state(house: House, entry: admin.ModelEntry) -> admin.ModelEntry:
    place = house.scheduler.places.get(entry.id)
    loaded = place is not None and place.seat is not None and place.seat.serves
    return structs.replace(entry, loaded=loaded) if loaded else entry


def forget(house: House, peer: str, call: admin.Forget, _payload: bytes) -> None:
    """A caller hung up."""
    house.scheduler.forget(peer, call.number)
    house.downloads.forget(peer, call.number)
    house.logbook.forget(peer, call.number)


def get_health(house: House, peer: str, call: admin.GetHealth, _payload: bytes) -> None:
    """Answer with the whole house at this moment."""
    now = house.loop.now()
    scheduler = house.scheduler
    report = admin.Health(
        status="draining" if scheduler.closing else "ok",
        version=RELEASE,
        boot=house.surroundings.boot,
        pid=os.getpid(),
        uptime=now - house.born,
        models=[_running(house, place) for place in scheduler.places.values() if place.seat and place.seat.holds_place],
        max_models={kind.value: house.settings.max_loaded_models for kind in ModelType},
        granted=scheduler.running,
        queued=scheduler.queued,
        troubled=[
            admin.TroubledModel(place.name, place.record.failure, place.record.failures, place.record.pause(now))
            for place in scheduler.places.values()
            if place.record.failure
        ],
        downloads=house.downloads.running(),
        peers=house.peers.all(),
        counters={
            **scheduler.counters,
            "bus_malformed": house.bus.malformed,
            "bus_undeliverable": house.bus.undeliverable,
        },
    )
    house.answer(peer, call.number, report)


def _running(house: House, place: Place) -> admin.RunningModel:
    seat = place.seat
    if seat is None or place.spec is None:
        raise TypeError("not running")
    child = house.workers.get(seat.worker)
    facts = seat.facts
    unused_s = 0.0 if place.running else house.loop.now() - max(place.last_use, house.born)
    return admin.RunningModel(
        spec=structs.replace(place.spec, pinned=place.pinned),
        worker=seat.worker,
        state=seat.state.value,
        worker_pid=child.pid if child else 0,
        last_use=math.floor((time.time() - unused_s) * 1000) / 1000,
        slots=facts.slots if facts else 0,
        context=facts.context if facts else 0,
        granted=place.running,
        queued=len(place.queue),
        engine_pid=facts.engine_pid if facts else 0,
        backend_url=facts.backend_url if facts else "",
        load_seconds=facts.seconds if facts else 0.0,
    )


def get_stats(house: House, peer: str, call: admin.GetStats, _payload: bytes) -> None:
    """Answer with the last finished request's figures."""
    stats = house.stats
    if call.model:
        name = house.models.resolve(call.model).name
        stats = house.stats_by_model.get(name, admin.Stats(name))
    house.answer(peer, call.number, stats)


def follow_logs(house: House, peer: str, call: admin.FollowLogs, _payload: bytes) -> None:
    """Answer with what is retained, then send what comes."""
    house.answer(peer, call.number, house.logbook.snapshot(call))
    house.logbook.follow(peer, call)


HANDLERS: Final[dict[type, Handler]] = {
    admin.ListModels: list_models,
    admin.GetModel: get_model,
    admin.Forget: forget,
    admin.GetHealth: get_health,
    admin.GetStats: get_stats,
    admin.FollowLogs: follow_logs,
}
