"""What a supervisor has counted since its start, besides what the scheduler counts."""

from __future__ import annotations

from collections.abc import Mapping

from protocol.runtime.loop import Loop
from supervisor.bus.sockets import SupervisorBus
from supervisor.internal_errors import InternalErrors
from supervisor.metrics.server_metrics import ServerMetrics
from supervisor.runtime.retained_log import RetainedLog


class ServerCounters:
    """Read by health and by `/metrics`. An earlier supervisor's count as well."""

    def __init__(
        self, loop: Loop, bus: SupervisorBus, errors: InternalErrors, metrics: ServerMetrics, retained_log: RetainedLog
    ) -> None:
        """These count; this class only reads them."""
        self._loop, self._bus, self._errors = loop, bus, errors
        self._metrics, self._retained_log = metrics, retained_log
        self.former: Mapping[str, int] = {}
        """The :meth:`totals` of the supervisor before this one."""

    @property
    def requests(self) -> int:
        """Inference requests."""
        return int(self._metrics.inference_requests.total)

    @property
    def internal_errors(self) -> int:
        """Exceptions in our own code, of all processes."""
        return self._errors.count + self._loop.errors + self.former.get("internal_errors", 0)

    def lost(self) -> dict[str, int]:
        """Return how many messages and log records were lost, by the reason."""
        lost = {
            "malformed": self._bus.malformed,
            "undeliverable": self._bus.undeliverable,
            "log_records": self._retained_log.lost,
        }
        return {reason: count + self.former.get(reason, 0) for reason, count in lost.items()}

    def totals(self) -> dict[str, int]:
        """Return all of them that nothing else keeps, for the next supervisor."""
        return {"internal_errors": self.internal_errors, **self.lost()}
