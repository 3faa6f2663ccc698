"""What is reported of the engines of a model that may have several."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from protocol.messages.health import ReplicaReport
from supervisor.scheduler.view_values import ModelView


def replica_reports(model: ModelView, pid: Callable[[str], int], node_of: Callable[[str], str]) -> list[ReplicaReport]:
    """Return a report for each engine. ``pid``, ``node_of``: a worker → its process, and its node where there are several."""
    return [
        ReplicaReport(
            each.number,
            each.state.value,
            slots=each.slots,
            running=each.running,
            worker=each.worker,
            worker_pid=pid(each.worker) if each.worker else 0,
            engine_pid=each.facts.engine_pid if each.facts is not None else 0,
            node=node_of(each.worker) or msgspec.UNSET,
        )
        for each in model.replicas
    ]
