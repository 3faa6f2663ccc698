"""The calls of :mod:`protocol.admin`, one function each: what a gateway asks beside inference."""

from __future__ import annotations

import os
import time
from functools import partial
from typing import Final

from msgspec import structs

from protocol import RELEASE, admin
from protocol.failures import Code, Failure
from protocol.recipes import ModelType
from supervisor import fetching
from supervisor.downloads import Waiter
from supervisor.house import Handler, House
from supervisor.places import Place
from supervisor.requests import target_of


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


def load_model(house: House, peer: str, call: admin.LoadModel, _payload: bytes) -> None:
    """Load a model, fetching it first if need be; the scheduler answers when it is ready."""
    name = house.models.resolve_or_adopt(call.model).name
    options = house.models.options.check(name, call.options)
    target = target_of(house, name, options)
    if target.spec is None and options:
        house.options_after_fetch[name] = options
    if target.spec is not None:
        house.models.precheck(target.spec)
    if call.save_options:
        house.models.options.save(name, options)
    house.scheduler.load_asked(peer, call.number, target._replace(pinned=call.pinned), house.loop.now())


def unload_model(house: House, peer: str, call: admin.UnloadModel, _payload: bytes) -> None:
    """Unload one model, or all; answered when they are gone."""
    if call.model:
        known = house.models.find(call.model)
        name = known.name if known else call.model  # one whose files were taken away may still be loaded
        if not house.scheduler.unload_asked(peer, call.number, name):
            raise Failure(Code.NOT_LOADED, f"Model not found: {call.model}", model=call.model).raised()
        return
    names = [place.name for place in house.scheduler.places.values() if place.seat and place.seat.holds_place]
    waiting = set(names)
    if not names:
        house.answer(peer, call.number, [])

    def gone(name: str, _result: object) -> None:
        waiting.discard(name)
        if not waiting:
            house.answer(peer, call.number, names)

    for name in names:
        house.scheduler.unload_asked("", house.call_self(partial(gone, name)), name)


def pull_model(house: House, peer: str, call: admin.PullModel, _payload: bytes) -> None:
    """Download a model of the catalogue."""
    name = house.models.resolve(call.model).name
    if house.models.downloaded(name):
        house.answer(peer, call.number, admin.Pulled(name))
        return
    fetching.fetch(house, name, Waiter(peer, call.number, call.progress))


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
        uptime=time.time() - house.born,
        models=[_running(house, place) for place in scheduler.places.values() if place.seat and place.seat.holds_place],
        max_models={kind.value: house.settings.max_loaded_models for kind in ModelType},
        granted=scheduler.granted,
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
    return admin.RunningModel(
        spec=structs.replace(place.spec, pinned=place.pinned),
        worker=seat.worker,
        state=seat.state.value,
        worker_pid=child.pid if child else 0,
        last_use=house.last_use.get(place.name, house.born),
        slots=facts.slots if facts else 0,
        context=facts.context if facts else 0,
        granted=place.busy,
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
    admin.LoadModel: load_model,
    admin.UnloadModel: unload_model,
    admin.PullModel: pull_model,
    admin.Forget: forget,
    admin.GetHealth: get_health,
    admin.GetStats: get_stats,
    admin.FollowLogs: follow_logs,
}
