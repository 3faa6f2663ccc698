"""The sampling defaults: kept in ``params.json``, answered, and told to every worker when they change.

Only what was set is kept and told: a server where nothing was set does nothing for any request.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec

from protocol import logs
from protocol.checkpoints import printable
from protocol.failures import Code, Failure, LemonbusError
from protocol.sampling import GetParams, Params, SetParams, Value, changed, check, in_force
from protocol.staff import Hello, Sampling
from supervisor import atomic, staffing
from supervisor.house import Handler, House
from workers.backends import DESCRIPTORS

FILE: Final = "params.json"

log = logs.get()


class Defaults:
    """What was set, and the messages about it."""

    def __init__(self, path: Path, report: Callable[[str], None]) -> None:
        """Read the file. A broken one is moved aside; a wrong value in it costs only itself; ``report`` is told."""
        self._path = path
        self.values: dict[str, Value] = {}
        """What was set."""
        try:
            items = atomic.read_object(path)
        except ValueError as problem:
            items = {}
            report(f"{problem}; {atomic.aside(path)}")
        except OSError as problem:
            items = {}
            report(f"{FILE} cannot be read: {problem.strerror}")
        for name, value in items.items():
            try:
                self.values = changed(self.values, check({name: value}))
            except LemonbusError as problem:
                report(f"{FILE}: {printable(name)} is left out: {problem}")

    def change(self, change: dict[str, Value | None]) -> bool:
        """Take over a change and keep it; return whether anything is different now.

        Raises ``invalid_request``, and ``internal_error`` if the file cannot be written: then nothing changes.
        """
        values = changed(self.values, check(change))
        if values == self.values:
            return False
        try:
            atomic.write(self._path, msgspec.json.format(msgspec.json.encode(values), indent=2) + b"\n")
        except OSError as problem:
            reason = f"the parameters could not be kept: {problem.strerror}"
            raise Failure(Code.INTERNAL, reason, detail=str(problem)).raised() from problem
        self.values = values
        return True

    def report(self) -> Params:
        """Return all six, which of them were set, and which of those a recipe has no use for."""
        ignored = {
            recipe: names
            for recipe, descriptor in DESCRIPTORS.items()
            if descriptor.sampling and (names := [name for name in self.values if name not in descriptor.sampling])
        }
        return Params(in_force(self.values), list(self.values), ignored)

    # messages

    def handlers(self) -> dict[type, Handler]:
        """Return what the messages mean; a worker that says hello is told what is set."""
        return {GetParams: self._get, SetParams: self._set, Hello: self._hello}

    def _get(self, house: House, peer: str, call: GetParams, _payload: bytes) -> None:
        house.answer(peer, call.number, self.report())

    def _set(self, house: House, peer: str, call: SetParams, _payload: bytes) -> None:
        if self.change(call.values):
            log.info("generation parameters set", **self.values)
            for worker in house.peers.of("worker"):
                house.bus.send(worker, Sampling(self.values))
        house.answer(peer, call.number, self.report())

    def _hello(self, house: House, peer: str, message: Hello, payload: bytes) -> None:
        staffing.hello(house, peer, message, payload)
        if message.role == "worker" and self.values:
            house.bus.send(peer, Sampling(self.values))
