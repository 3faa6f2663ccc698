"""Whose turn it is: drains, grants, checks and loads that the present state allows. Pure.

Called after every event.  It derives everything from the state, so that there is nothing to undo: a drain
that nobody needs any more is simply not asked for again.

A model that must make room stops taking whoever came after the one that waits for its place, from the moment
that one asked; it is only stopped once the other has passed all checks that need no engine.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from protocol.failures import Code, Failure
from protocol.leases import Recall
from protocol.staff import Check, Load
from supervisor.board import Board
from supervisor.effects import Note, Send, Spawn
from supervisor.eviction import Blocked, Budget, Evict, Fits, Tenant, Wish, decide
from supervisor.lending import pause_after
from supervisor.lifecycle import State, Step
from supervisor.places import Place, Seat

_NOBODY: Final = 1 << 62


class Claim(NamedTuple):
    """Somebody must make room for a request of this order; ``sure``: the one who comes has been checked."""

    order: int
    sure: bool


def go_on(board: Board, now: float) -> None:
    """Do all that can be done now."""
    places = board.places.values()
    for place in list(places):
        _restart(board, place, now)
        if place.order is None and not place.wanted:
            _let_go(board, place)
    claiming = [] if board.closing else claimants(places, now)
    claims = _claims(board, claiming, now)
    for place in list(places):
        _drain_or_resume(board, place, claims.get(place.name))
        _grant(board, place, claims.get(place.name), now)
        _finish_drain(board, place, claims.get(place.name))
    if not board.closing:
        _keep_spares(board, claiming, now)
    board.settled = _settled(board, now)
    if not board.settled:
        _recall(board, now)


def _recall(board: Board, now: float) -> None:
    """Want all leases back: somebody waits, or something moves, and then everything is decided here."""
    for place in board.places.values():
        recalled = False
        for gateway, lease in place.leases.items():
            if not lease.recalled and place.seat is not None:
                lease.recalled = recalled = True
                board.emit(Send(place.seat.worker, Recall(gateway, lease.number)))
        if recalled:
            board.count("recalls")
            place.lend_pause = pause_after(place, now)
            place.recalled = now


def _settled(board: Board, now: float) -> bool:
    """Return whether only an event can give anything to do: all that runs is ready, and nobody waits."""
    return (
        not board.closing
        and not board.nursery.pause(now)
        and all(seat.state in (State.READY, State.SPARE) for seat in board.seats.values())
        and all(_content(place) for place in board.places.values())
    )


def _content(place: Place) -> bool:
    waits = place.queue or place.loaders or place.unloaders or place.respec or place.fetching
    return not waits and (place.seat is not None or not place.wanted)


def _restart(board: Board, place: Place, now: float) -> None:
    """Start the engine again in a worker that survived its death."""
    seat = place.seat
    if seat is None or seat.state is not State.FAILED:
        return
    if not place.wanted or place.unloaders or place.respec or place.spec is None or board.closing:
        board.leave(seat)
    elif place.record.pause(now) == 0.0:
        seat.step(Step.LOAD)
        board.count("restarts")
        board.emit(Send(seat.worker, Load(place.spec)))


def claimants(places: Iterable[Place], now: float) -> list[Place]:
    """Return the models that want to be loaded and are not, whoever waits longest first."""
    claiming = [
        place
        for place in places
        if place.spec is not None
        and (place.seat is None or place.seat.state in (State.CHECKING, State.CHECKED))
        and (place.order is not None or place.wanted)
        and (place.loaders or place.record.pause(now) == 0.0)
    ]
    return sorted(claiming, key=lambda place: place.order if place.order is not None else _NOBODY)


def _claims(board: Board, claiming: list[Place], now: float) -> dict[str, Claim]:
    """Seat those who want to be loaded, and return who must leave for them."""
    spares = [seat for seat in board.seats.values() if seat.state is State.SPARE] if claiming else []
    claims: dict[str, Claim] = {}
    ahead: list[Tenant] = []
    for place in claiming:
        seat = place.seat
        memory = seat.memory if seat else place.memory
        tenants = [*(_tenant(other, place_of, claims) for other, place_of in _tenancies(board)), *ahead]
        wish = Wish(place.name, place.type, memory, _npu(place))
        verdict = decide(wish, tenants, Budget(board.limits.places, board.memory))
        if isinstance(verdict, Blocked):
            _blocked(board, place, verdict)
            continue
        if not isinstance(verdict, Fits) and not _may_displace(place, now):
            _stand_back(board, place, now)
            continue
        ahead.append(Tenant(place.name, place.type, now, busy=True, movable=False, memory=memory, npu=wish.npu))
        if isinstance(verdict, Evict):
            sure = seat is not None and seat.state is State.CHECKED
            claims |= dict.fromkeys(verdict.models, Claim(place.order or 0, sure))
        if place.spec is None:
            continue
        if seat is None and spares:
            seat = place.seat = spares.pop()
            seat.place = place
            seat.step(Step.CHECK)
            board.emit(Send(seat.worker, Check(place.spec)))
        elif seat is not None and seat.state is State.CHECKED and isinstance(verdict, Fits):
            seat.step(Step.LOAD)
            board.emit(Send(seat.worker, Load(place.spec)))
    return claims


def _may_displace(place: Place, now: float) -> bool:
    """Whether others must make room: somebody waits for it, and it is not known to fail."""
    return place.order is not None and (bool(place.loaders) or not place.record.suspect(now))


def _blocked(board: Board, place: Place, verdict: Blocked) -> None:
    _let_go(board, place)
    place.wanted = False
    reason = f"No place for model {place.name}: pinned are {', '.join(verdict.pins)}"
    board.give_up(place, Failure(Code.ALL_PINNED, reason, model=place.name))


def _stand_back(board: Board, place: Place, now: float) -> None:
    """It died or failed while others are well: it displaces nobody."""
    _let_go(board, place)
    place.wanted = False
    place.former = None
    known = place.record.failure
    if known is None:
        return
    reason = (
        f"Model {place.name} could not be loaded last time, so it displaces no other model "
        f"until it is loaded explicitly: {known.message}"
    )
    pause = max(board.limits.restarts.first, place.record.suspect_for(now))
    board.give_up(place, Failure(Code.BACKING_OFF, reason, model=place.name, retry_after=pause, detail=known.detail))


def _let_go(board: Board, place: Place) -> None:
    """Give a seat that has checked a model back to the spares; a check that is under way goes on."""
    if place.seat is not None and place.seat.state is State.CHECKED:
        board.let_go(place)


def _tenancies(board: Board) -> Iterable[tuple[Seat, Place]]:
    for seat in board.seats.values():
        if seat.place is not None and seat.holds_place:
            yield seat, seat.place


def _tenant(seat: Seat, place: Place, claims: dict[str, Claim]) -> Tenant:
    return Tenant(
        place.name,
        place.type,
        place.last_use,
        busy=place.busy > 0,
        pinned=place.pinned,
        movable=seat.serves,
        leaving=seat.state is State.STOPPING or place.name in claims,
        draining=seat.state is State.DRAINING,
        memory=seat.memory,
        npu=_npu(place),
    )


def _npu(place: Place) -> str:
    return place.spec.npu if place.spec else ""


def _drain_or_resume(board: Board, place: Place, claim: Claim | None) -> None:
    seat = place.seat
    if seat is None or not seat.serves:
        return
    must = claim is not None or bool(place.unloaders) or place.respec is not None or board.closing or place.stuck
    if must and seat.state is State.READY:
        seat.step(Step.DRAIN)
        board.emit(
            Note("info", "draining", {"model": place.name, "worker": seat.worker, "why": board.why_leaving(place)})
        )
    elif not must and seat.state is State.DRAINING:
        seat.step(Step.RESUME)


def _grant(board: Board, place: Place, claim: Claim | None, now: float) -> None:
    """Grant from the head of the queue while slots are free; nobody overtakes, so nobody starves."""
    seat = place.seat
    if seat is None or not seat.serves or seat.facts is None or place.unloaders or place.respec:
        return
    before = max(place.cutoff, claim.order) if claim else _NOBODY
    slots = seat.facts.slots
    while place.queue:
        waiting = place.queue[0]
        weight = slots if waiting.ask.suspect else min(max(1, waiting.ask.weight), slots)
        if waiting.order >= before or place.busy + weight > slots:
            return
        place.dequeue(waiting.key)
        board.grant(place, seat, waiting, weight, now)


def _finish_drain(board: Board, place: Place, claim: Claim | None) -> None:
    seat = place.seat
    if seat is None or seat.state is not State.DRAINING or place.needed:
        return
    asked = bool(place.unloaders) or place.respec is not None or board.closing
    makes_room = claim is not None and claim.sure
    if not asked and not makes_room and not place.stuck:
        return
    if place.stuck and not asked and not makes_room:
        # It is loaded again as after a death: without a request.
        place.wanted = True
        board.count("restarts")
    elif not asked:
        board.count("evictions")
        place.wanted = False
    if place.grants:
        fields = {"model": place.name, "worker": seat.worker, "why": board.why_leaving(place)}
        board.emit(Note("warning", "engine ended, what it works on nobody wants", fields))
    if place.respec:
        place.former, place.spec, place.respec = place.spec, place.respec, None
    board.leave(seat)


def _keep_spares(board: Board, claiming: list[Place], now: float) -> None:
    """Have spare workers ready; not while something loads, because it would take that its processor."""
    if board.nursery.pause(now):
        return
    seats = board.seats.values()
    coming = sum(seat.state in (State.SPAWNED, State.SPARE) for seat in seats)
    unseated = sum(place.seat is None and place.order is not None for place in claiming)
    loading = any(seat.state is State.LOADING for seat in seats)
    wanted = max(unseated, 0 if loading else board.limits.spares)
    for _ in range(wanted - coming):
        worker = board.new_worker()
        board.seats[worker] = Seat(worker)
        board.emit(Spawn(worker))
