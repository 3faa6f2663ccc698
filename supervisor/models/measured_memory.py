"""``measured_memory.json``: how far the memory that engines took was from what was estimated, for each model with its options.

An engine that has just started has touched only a part of what it will use. So not what it took is kept, but by how much it
differs from what it was expected to take at that time.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from protocol import RELEASE
from protocol.models.memory import MemoryEstimate
from protocol.models.nodes import HEAD
from protocol.models.recipes import ModelSpec
from supervisor.persistence.state_files import FinishWrite, StateFile, finish_write

FILE: Final = "measured_memory.json"
MAX_RECORDS: Final = 512
"""The records that were not used for the longest time are dropped."""
LEAST_CHANGE: Final = 1 << 20
"""A record that would change by less is not written again."""
FAILED_LOAD_COUNTS_S: Final = 3600.0
"""How long a failed load corrects estimates. It may have taken more than a load that succeeds, and a model that therefore never fits
would never be measured again."""
_CHOSEN: Final = "ctx_size"
"""The option that may differ: an estimate has a part that is proportional to it."""


class _MemoryRecord(msgspec.Struct, frozen=True):
    model: str
    differences: dict[str, int]
    """Place → bytes that the engine took beyond the estimate; below zero if it took less."""


class _FailedLoad(NamedTuple):
    differences: Mapping[str, int]
    until: float
    """When it does not count any more."""


class MeasuredMemory:
    """What is known of former loads. Only what was measured of engines that were ready is in the file."""

    def __init__(
        self, path: Path, finish: FinishWrite = finish_write, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Read the file. A broken one is moved aside.

        ``finish``: see :class:`supervisor.persistence.state_files.StateFile`. ``clock`` returns seconds.
        """
        self._file = StateFile(path, finish)
        self._clock = clock
        self.problems: list[str] = self._file.problems
        """Errors in the file. The reader of this list empties it."""
        self._records: dict[str, _MemoryRecord] = {}
        """The one that was used last is the last one."""
        self._failed: dict[str, _FailedLoad] = {}
        """The one that failed last is the last one."""
        self._read()

    def _read(self) -> None:
        self._records = (self._file.load(dict[str, _MemoryRecord]) or {}) | self._records

    def corrected(self, spec: ModelSpec, node: str, estimate: MemoryEstimate) -> MemoryEstimate:
        """Return an estimate for a model, corrected by what its last engine with these options took on this node."""
        key = fingerprint(spec, node)
        differences: Mapping[str, int] = {}
        if (record := self._records.pop(key, None)) is not None:
            self._records[key] = record
            differences = record.differences
        if (failed := self._failed.get(key)) is not None and self._clock() < failed.until:
            differences = _larger(differences, failed.differences)
        return estimate.corrected(differences) if differences else estimate

    def note_failed(self, spec: ModelSpec, node: str, differences: Mapping[str, int]) -> None:
        """Keep what an engine had taken that ended before it was ready: it needs no less.

        It counts for :data:`FAILED_LOAD_COUNTS_S`, until an engine is ready, or until the supervisor ends.
        """
        key, now = fingerprint(spec, node), self._clock()
        former = self._failed.pop(key, None)
        if former is not None and now < former.until:
            differences = _larger(former.differences, differences)
        self._failed[key] = _FailedLoad(differences, now + FAILED_LOAD_COUNTS_S)
        if len(self._failed) > MAX_RECORDS:
            del self._failed[next(iter(self._failed))]

    def note(self, spec: ModelSpec, node: str, differences: Mapping[str, int]) -> None:
        """Keep what was measured of a model in these places of a node. A write that fails is one of :attr:`problems`."""
        if self._file.readable_again():
            self._read()
        key = fingerprint(spec, node)
        self._failed.pop(key, None)
        former = self._records.pop(key, None)
        known = former.differences if former is not None else {}
        self._records[key] = _MemoryRecord(spec.name, {**known, **differences})
        for oldest in list(self._records)[: max(0, len(self._records) - MAX_RECORDS)]:
            del self._records[oldest]
        unchanged = all(
            place in known and abs(size - known[place]) < LEAST_CHANGE for place, size in differences.items()
        )
        if unchanged and not self._file.failed:
            return
        try:
            self._file.replace({each: msgspec.to_builtins(record) for each, record in self._records.items()})
        except OSError as problem:
            self.problems.append(f"{FILE} could not be written: {problem.strerror}")


def _larger(one: Mapping[str, int], other: Mapping[str, int]) -> dict[str, int]:
    """Return the larger of two differences for each place."""
    return {**one, **{place: max(size, one.get(place, size)) for place, size in other.items()}}


def fingerprint(spec: ModelSpec, node: str) -> str:
    """Return what a measurement is valid for: the model's files, its engine, its options except the context, and the node.

    Places of two nodes may have the same name: each has a host, and cards in the same slots.
    """
    options = {name: value for name, value in spec.options.items() if name != _CHOSEN}
    parts = (
        RELEASE,
        spec.recipe,
        spec.backend,
        spec.path,
        spec.size,
        spec.mmproj,
        *([spec.parts] if spec.parts else []),
        spec.devices,
        options,
        spec.env,
        spec.engine,
        *([] if node == HEAD else [node]),
    )
    return hashlib.sha256(msgspec.json.encode(parts, order="deterministic")).hexdigest()[:16]
