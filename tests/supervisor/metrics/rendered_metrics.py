"""A busy server's metrics, and what ``/metrics`` shows of them."""

from __future__ import annotations

from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families

from protocol.messages.devices import DeviceReading
from protocol.messages.events import Outcome
from protocol.messages.health import DiskSpace
from protocol.messages.metrics import DURATION_BUCKETS, RequestSeries
from protocol.models.memory import Capacity
from supervisor.metrics.server_metrics import ServerMetrics
from supervisor.metrics.snapshot import EngineMetrics, MachineSnapshot, ModelSnapshot, ServerSnapshot


def snapshot(*engines: EngineMetrics, models: tuple[ModelSnapshot, ...] = ()) -> ServerSnapshot:
    return ServerSnapshot("1.2.3", 3600.5, 2, list(models), {"gateway": 7}, {"malformed": 1}, 0, list(engines))


LOADED = ModelSnapshot('a"b\\c\n', True, 1, 4, 2, 1_236_000_000, 4096, 35, 100, 4_500_000_000)


MACHINE = MachineSnapshot(
    memory=[Capacity("host", 64, 48), Capacity("0000:03:00.0", 24, 20, name="Card", used_percent=7.0, age=2.5)],
    devices=[
        DeviceReading("amd", "0000:03:00.0", "0000:03:00.0", "GPU-1", "Card", 24, 20, used_percent=7.0),
        DeviceReading("amd", "0000:c4:00.0", "host", name="Graphics", used_percent=50.0),
        DeviceReading("amd", "0000:41:00.0", "MIG-1", "MIG-1", "Part", 9, 9),
    ],
    disks=[DiskSpace("cache", 5, 9), DiskSpace("state", 4, 9)],
)


def busy_metrics() -> ServerMetrics:
    metrics = ServerMetrics()
    metrics.generation_ended(LOADED.name, Outcome(12, 2, 8, 0.1, 0.4, 0.5, b"\0" * 32))
    buckets = [0] * (len(DURATION_BUCKETS) + 1)
    buckets[DURATION_BUCKETS.index(0.5)] = 2
    metrics.requests_observed([RequestSeries("api/chat", "mullama", 200, "", "chat/completions", 0.6, buckets)])
    return metrics


def families(text: bytes) -> dict[str, Metric]:
    found = list(text_string_to_metric_families(text.decode()))
    assert len({family.name for family in found}) == len(found), "a family is there once"
    return {family.name: family for family in found}
