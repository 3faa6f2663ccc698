"""Messages about inference: which model a request means, and what becomes of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from protocol.admin import OptionValue, Stats
from protocol.failures import Code, Failure, LemonbusError
from protocol.ids import RequestKey
from protocol.leases import LeaseEnded, LeaseUsed
from protocol.recipes import ModelSpec
from protocol.work import Ask, Cancel, Idle, Idles, Unwanted
from supervisor import files
from supervisor.board import Target
from supervisor.catalogue import Entry
from supervisor.house import Handler, House
from supervisor.places import Place
from workers.backends import DESCRIPTORS, backend_class

MOST_NAMES: Final = 1024
"""Names of running models that are remembered without looking them up again."""


def target_of(
    house: House, name: str, options: Mapping[str, OptionValue] | None = None, *, afresh: bool = False
) -> Target:
    """Return what a model's name comes to; raises ``model_not_found``, and what is wrong with the options.

    Of a model that is not here it also raises what would keep it from running when it has come.

    ``afresh``: see :meth:`supervisor.models.Models.spec`.
    """
    entry = house.models.resolve(name)
    place = house.scheduler.places.get(entry.name)
    if place and (place.seat or place.wanted) and place.spec and not options and not afresh:
        return Target(entry.name, place.type, place.spec)
    found = house.models.located(entry.name)
    spec = house.models.spec(entry.name, options or {}, afresh=afresh, found=found or files.expected(entry))
    if found is None:
        house.models.precheck(spec)
        return Target(entry.name, entry.type.value, None)
    return Target(entry.name, spec.type, spec)


def ask(house: House, peer: str, message: Ask, payload: bytes) -> None:
    """A gateway wants something run."""
    key = RequestKey(peer, message.number, message.attempt)
    now = house.loop.now()
    try:
        if message.endpoint == "slots":
            house.scheduler.read(key, message, payload, _slots_place(house, message.model))
        else:
            house.scheduler.asked(key, message, payload, _target(house, message), now)
    except LemonbusError as problem:
        house.scheduler.refuse(key, problem.failure)


def _target(house: House, message: Ask) -> Target:
    """Return what a request is for; the name of a model that runs is not looked up on the disk."""
    if not message.model:
        return _latest(house, message.endpoint)
    place = house.scheduler.places.get(house.running_names.get(message.model, ""))
    if place and place.seat and place.seat.serves and place.spec:
        model: Entry | ModelSpec = place.spec
        target = Target(place.name, place.type, place.spec)
    else:
        model = house.models.resolve(message.model)
        if model.recipe in DESCRIPTORS:
            backend_class(model.recipe)  # before anything is downloaded that cannot be run
        target = target_of(house, message.model)
        if len(house.running_names) >= MOST_NAMES:
            house.running_names.clear()
        house.running_names[message.model] = target.name
    if not house.models.serves(model, message.endpoint):
        house.models.descriptor(target.name)
        reason = f"Model {target.name} is of type {target.type} and does not serve {message.endpoint}"
        raise Failure(Code.INVALID_REQUEST, reason, model=target.name, param="model").raised()
    return target


def _latest(house: House, endpoint: str) -> Target:
    """Return the model used last that serves an endpoint, whether it is still loaded or not."""
    for name in house.scheduler.used():
        entry = house.models.find(name)
        if entry is not None and house.models.serves(entry, endpoint):
            return target_of(house, entry.name)
    reason = f"No model was named, and none that serves {endpoint} was used yet"
    raise Failure(Code.INVALID_REQUEST, reason, param="model").raised()


def _slots_place(house: House, model: str) -> Place:
    if model:
        place = house.scheduler.places.get(house.models.resolve(model).name)
    else:
        place = house.scheduler.latest(lambda place: place.spec is not None and place.spec.recipe == "llamacpp")
    if place is None or place.spec is None or not place.slots or place.spec.recipe != "llamacpp":
        which = f"Model {model} is not a loaded llamacpp model" if model else "No llamacpp model is loaded"
        raise Failure(Code.INVALID_REQUEST, which, param="model").raised()
    return place


def idle(house: House, peer: str, message: Idle, _payload: bytes) -> None:
    """An engine has stopped working on an attempt."""
    key = RequestKey(message.gateway, message.number, message.attempt)
    now = house.loop.now()
    seconds = message.outcome.total_s if message.lease and message.outcome else 0.0
    place = house.scheduler.idle(key, message.code, now, seconds)
    if place is None:
        place = house.scheduler.lease_idle(peer, key, seconds, now, under=bool(message.lease))
    if place is not None and message.outcome is not None:
        house.stats = house.stats_by_model[place.name] = Stats(place.name, message.outcome)


def idles(house: House, peer: str, message: Idles, payload: bytes) -> None:
    """An engine has stopped working on several."""
    for end in message.ends:
        idle(house, peer, end, payload)


def unwanted(house: House, peer: str, message: Unwanted, _payload: bytes) -> None:
    """An engine works on what nobody wants any more."""
    house.scheduler.unwanted(peer, RequestKey(message.gateway, message.number, message.attempt))


def cancel(house: House, peer: str, message: Cancel, _payload: bytes) -> None:
    """A gateway's client is gone."""
    house.scheduler.cancelled(RequestKey(peer, message.number, message.attempt), message.reason)


def lease_used(house: House, peer: str, message: LeaseUsed, _payload: bytes) -> None:
    """Something runs under a lease."""
    house.scheduler.lease_used(peer, message.gateway, message.lease, message.runs)


def lease_ended(house: House, peer: str, message: LeaseEnded, _payload: bytes) -> None:
    """Slots that were lent are back."""
    house.scheduler.lease_ended(peer, message.gateway, message.lease, message.runs, house.loop.now())


HANDLERS: Final[dict[type, Handler]] = {
    Ask: ask,
    Idle: idle,
    Idles: idles,
    Unwanted: unwanted,
    Cancel: cancel,
    LeaseUsed: lease_used,
    LeaseEnded: lease_ended,
}
