"""What a supervisor has counted since its start, besides what the scheduler counts."""

from __future__ import annotations

from protocol.runtime.loop import Loop
from supervisor.bus.sockets import SupervisorBus
from supervisor.internal_errors import InternalErrors
from supervisor.metrics.server_metrics import ServerMetrics
from supervisor.runtime.retained_log import RetainedLog


class ServerCounters:
    """Read by health and by `/metrics`."""

    def __init__(
        self, loop: Loop, bus: SupervisorBus, errors: InternalErrors, metrics: ServerMetrics, retained_log: RetainedLog
    ) -> None:
        """These count; this class only reads them."""
        self._loop, self._bus, self._errors = loop, bus, errors
        self._metrics, self._retained_log = metrics, retained_log

    @property
    def requests(self) -> int:
        """Inference requests."""
        return int(self._metrics.inference_requests.total)

    @property
    def internal_errors(self) -> int:
        """Exceptions in our own code, of all processes."""
        return self._errors.count + self._loop.errors

    def lost(self) -> dict[str, int]:
        """Return how many messages and log records were lost, by the reason."""
        return {
            "malformed": self._bus.malformed,
            "undeliverable": self._bus.undeliverable,
            "log_records": self._retained_log.lost,
        }
