"""What must hold of the scheduler after every step: what it believes is what its workers really do."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping

from protocol.ids import RequestKey
from supervisor.scheduler import Scheduler
from tests.supervisor.worker import Worker


def places(scheduler: Scheduler, workers: Mapping[str, Worker], slots: int) -> None:
    """Every place has what its engine really does, and no more than there is; ``slots``: of each engine."""
    for place in scheduler.places.values():
        seat = place.seat
        worker = workers.get(seat.worker, Worker()) if seat else Worker()
        granted = {key: grant.weight for key, grant in place.grants.items()}
        leased = dict(worker.leased)
        for gateway, _, runs in worker.unsaid:
            leased |= {RequestKey(gateway, run.number, run.attempt): run.weight for run in runs}
            leased |= place.leases[gateway].running
        if worker.unheard:
            leased |= {key: weight for lease in place.leases.values() for key, weight in lease.running.items()}
        assert not granted.keys() & leased.keys(), f"{place.name}: a request has two grants"
        known = granted | leased
        assert known.keys() == set(worker.running), f"{place.name}: grants differ from what the engine does"
        assert place.busy <= slots
        assert place.unwanted <= worker.unwanted & set(worker.running)
        assert sum(known.values()) <= place.busy, f"{place.name}: more runs than was granted and lent"
        for gateway, lease in worker.leases.items():
            if worker.unheard:
                assert place.leases[gateway].slots >= lease.slots
                continue
            assert place.leases[gateway].running.items() <= lease.runs.items()
            assert place.leases[gateway].number == lease.number
            assert place.leases[gateway].slots == lease.slots
        assert place.queued_bytes == sum(waiting.ask.size for waiting in place.queue)
        orders = [waiting.order for waiting in place.queue]
        assert orders == sorted(orders)
    holding = [seat for seat in scheduler.seats.values() if seat.holds_place]
    assert len(holding) <= scheduler.limits.places


def requests(
    scheduler: Scheduler, workers: Mapping[str, Worker], ended: Counter[RequestKey], live: Collection[RequestKey]
) -> None:
    """Every request is in one hand, and ends once."""
    assert all(count == 1 for count in ended.values()), "ended twice"
    queued = {waiting.key for place in scheduler.places.values() for waiting in place.queue}
    running = {key for worker in workers.values() for key in worker.running}
    assert set(live) == queued | running, "a request is in no hand"
