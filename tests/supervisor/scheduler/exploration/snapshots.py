"""Worlds as bytes: a world is kept in a state, and goes on from it several times."""

from __future__ import annotations

import io
import itertools
import pickle
from collections.abc import Callable
from typing import Any, Final

from protocol.failures import Code, Failure
from protocol.messages.engines import CheckModel, EngineReady, StartEngine
from protocol.messages.models import PolicyOverrides
from protocol.messages.work import SubmitRequest
from protocol.models.memory import Capacity, MemoryEstimate
from protocol.models.nodes import NodeFacts
from protocol.models.recipes import ModelSpec
from protocol.worker_states import WorkerState
from supervisor.metrics.server_metrics import ServerMetrics
from supervisor.scheduler.backoff import BackoffPolicy
from supervisor.scheduler.crash_record import RequestOrigin
from supervisor.scheduler.inputs import SchedulerLimits
from supervisor.scheduler.model_states import ModelState
from supervisor.scheduler.policy import FixedPolicies, ModelPolicy

SHARED: Final = frozenset(
    {
        *(ModelSpec, MemoryEstimate, SubmitRequest, NodeFacts, EngineReady, Capacity, PolicyOverrides, RequestOrigin),
        *(Failure, Code, WorkerState, ModelState, ModelPolicy, FixedPolicies, SchedulerLimits, BackoffPolicy),
        *(CheckModel, StartEngine),
        ServerMetrics,
    }
)
"""The classes whose objects do not change: they are the same in all worlds. And what decides nothing."""
_objects: Final[dict[int, object]] = {}
"""Identity → shared object."""


def _count(of: itertools.count[int]) -> tuple[Callable[[int], itertools.count[int]], tuple[int]]:
    return itertools.count, (int(repr(of)[len("count(") : -1]),)  # newer Pythons do not pickle it


class _Pickler(pickle.Pickler):
    dispatch_table: Final = {itertools.count: _count}

    def persistent_id(self, of: object) -> int | None:
        if type(of) not in SHARED:
            return None
        _objects[id(of)] = of
        return id(of)


class _Unpickler(pickle.Unpickler):
    persistent_load = staticmethod(_objects.__getitem__)


def snapshot(of: object) -> bytes:
    """Return an object as bytes."""
    out = io.BytesIO()
    _Pickler(out, pickle.HIGHEST_PROTOCOL).dump(of)
    return out.getvalue()


def restored(of: bytes) -> Any:
    """Return another object like the one that the snapshot was made of."""
    return _Unpickler(io.BytesIO(of)).load()
