"""The sampling defaults: stored in ``params.json``, and sent to every worker on each change.

Only defaults that were set are stored and sent. If none are set, requests have no extra cost.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from protocol.failures import LemonbusError, printable, write_failure
from protocol.messages.engines import SamplingDefaults
from protocol.messages.models import GetParams, ParamsReport, SetParams
from protocol.models.sampling import SamplingValue, apply_change, check_params, effective_params
from protocol.runtime import logs
from supervisor.bus.peer_registry import PeerRegistry
from supervisor.bus.sockets import SupervisorBus
from supervisor.persistence.state_files import FinishWrite, StateFile, finish_write
from supervisor.runtime.gateway_calls import GatewayCalls
from supervisor.runtime.handler_table import Handler
from workers.backends.registry import DESCRIPTORS

FILE: Final = "params.json"

log = logs.get_logger()


class SamplingDefaultsStore:
    """The defaults that are set."""

    def __init__(self, path: Path, report: Callable[[str], None], finish: FinishWrite = finish_write) -> None:
        """Read the file.

        A broken file is moved aside, and a wrong value in it is left out; ``report`` gets a line for each.

        ``finish``: see :class:`supervisor.persistence.state_files.StateFile`.
        """
        self._file = StateFile(path, finish)
        self._report_problem = report
        self.values: dict[str, SamplingValue] = {}
        """Parameter → value, for those that are set."""
        self._read()

    def _read(self) -> None:
        items = self._file.load(dict[str, Any]) or {}
        while self._file.problems:
            self._report_problem(self._file.problems.pop(0))
        for name, value in items.items():
            try:
                self.values = apply_change(self.values, check_params({name: value}))
            except LemonbusError as problem:
                self._report_problem(f"{FILE}: {printable(name)} is left out: {problem}")

    def change(self, change: dict[str, SamplingValue | None]) -> bool:
        """Apply and store a change; return whether anything is different now.

        Raises ``invalid_request``, or ``internal_error`` if the file cannot be written, in which case nothing changes.
        """
        checked = check_params(change)
        if read := self._file.readable_again():
            self._read()
        values = apply_change(self.values, checked)
        if values == self.values and not self._file.failed:
            return read
        try:
            self._file.replace(values)
        except OSError as problem:
            reason = f"the parameters could not be stored: {problem.strerror}"
            raise write_failure(problem, reason).raised() from problem
        self.values = values
        return True

    def report(self) -> ParamsReport:
        """Return all six, which of them are set, and which set ones each recipe does not use."""
        ignored = {
            recipe: names
            for recipe, descriptor in DESCRIPTORS.items()
            if descriptor.sampling and (names := [name for name in self.values if name not in descriptor.sampling])
        }
        return ParamsReport(effective_params(self.values), list(self.values), ignored)


class SamplingDefaultsCalls:
    """Takes the messages about them, and sends them to the workers."""

    def __init__(
        self, defaults: SamplingDefaultsStore, calls: GatewayCalls, bus: SupervisorBus, peers: PeerRegistry
    ) -> None:
        self._defaults, self._calls, self._bus, self._peers = defaults, calls, bus, peers

    def handlers(self) -> dict[type, Handler]:
        """Return the handlers of these messages."""
        return {GetParams: self._get, SetParams: self._set}

    def send(self, worker: str) -> None:
        """Send the set defaults to a worker that has said Hello."""
        if self._defaults.values:
            self._bus.send(worker, SamplingDefaults(self._defaults.values))

    def _get(self, peer: str, call: GetParams, _payload: bytes) -> None:
        self._calls.answer(peer, call.number, self._defaults.report())

    def _set(self, peer: str, call: SetParams, _payload: bytes) -> None:
        if self._defaults.change(call.values):
            log.info("generation parameters set", **self._defaults.values)
            for worker in self._peers.of("worker"):
                self._bus.send(worker, SamplingDefaults(self._defaults.values))
        self._calls.answer_when_written(peer, call.number, self._defaults.report())
