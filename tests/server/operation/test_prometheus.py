"""The files of `deploy/monitoring` in a real Prometheus: a server under load, whose engines are killed, gives data to each panel

and makes the alerts fire.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from protocol.config.api_keys import KEYS_FILE, ApiKey, Scope, digest, write_keys
from tests.conftest import StartServer
from tests.support import processes
from tests.support.clients.http_client import RawHttpClient
from tests.support.prometheus import Prometheus, dashboard_expressions
from tests.support.proxies import program
from tests.support.server import LemonbusServer
from tests.support.waiting import wait_for

CHAT, LOOP, BROKEN = "extra.tiny-chat", "extra.tiny-loop", "extra.broken"
ADMIN, CLIENT, SCRAPER, SMALL = "of-an-admin", "of-a-client", "of-prometheus", "small"
DEATHS = 3
SOON = 30.0
"""Seconds until Prometheus, which looks each second, knows what has happened."""
FAULTS = {"LemonbusEnginesDie", "LemonbusErrors", "LemonbusRefusals", "LemonbusModelFailing", "LemonbusLimitUsedUp"}
"""Alerts that fire because of what happens here."""
UNSEEN = {
    "lemonbus_device_utilization_ratio": "it needs a GPU",
    "lemonbus_bus_dropped_total": "it needs a fault",
    "lemonbus_retries_total": "an engine must die before the first token",
    "resets(": "it needs a restart",
    "lemonbus_nodes": "it needs a second machine",
}
"""Expressions without data here."""

pytestmark = [
    pytest.mark.skipif(not program("prometheus"), reason="Prometheus is not installed (make prometheus)"),
    pytest.mark.timeout(240),
]


@pytest.fixture
def server(start_server: StartServer) -> LemonbusServer:
    """A server with keys, and a model that cannot be loaded; one model at a time, so that one evicts the other."""
    server = start_server("tiny-chat", "tiny-loop", admin_api_key=ADMIN, max_loaded_models=1, breaker_deaths=10_000)
    (server.models / "broken.gguf").write_bytes(b"GGUF" + bytes(200))
    keys = [
        ApiKey(name="client", sha256=digest(CLIENT), scopes=[Scope.INFERENCE], expires=time.time() + 86_400),
        ApiKey(name="prometheus", sha256=digest(SCRAPER), scopes=[Scope.METRICS]),
        ApiKey(name="small", sha256=digest(SMALL), scopes=[Scope.INFERENCE], tokens_per_day=1),
    ]
    write_keys(Path(server.settings.state_dir) / KEYS_FILE, keys)
    return server


@pytest.fixture
def prometheus(server: LemonbusServer, tmp_path: Path) -> Iterator[Prometheus]:
    with Prometheus(tmp_path, server.port, SCRAPER) as running:
        wait_for(lambda: running.query("lemonbus_ready == 1"), "Prometheus has read the server", SOON)
        yield running


def client_of(server: LemonbusServer, key: str) -> RawHttpClient:
    return RawHttpClient(server.port, {"Authorization": f"Bearer {key}"})


def kill_a_busy_engine(server: LemonbusServer) -> None:
    """Kill the engine of a model while it answers."""
    stream = client_of(server, CLIENT).start_chat(LOOP, stream=True, max_tokens=100_000)
    stream.until(lambda it: len(it.events) > 2)
    processes.kill(server.engine_pid(LOOP))
    stream.finish()


def everything_happens(server: LemonbusServer) -> None:
    """Ask each model, and let an engine die: counters must grow while Prometheus looks, because it ignores their first values."""
    for model in (CHAT, LOOP, BROKEN):
        client_of(server, CLIENT).chat(model, max_tokens=4)
    kill_a_busy_engine(server)


def test_panels_have_data_and_alerts_fire(server: LemonbusServer, prometheus: Prometheus) -> None:
    wait_for(lambda: "LemonbusKeyExpires" in prometheus.firing(), "a key expires soon", SOON)
    assert not FAULTS.intersection(prometheus.firing())
    for _ in range(DEATHS):
        kill_a_busy_engine(server)
    assert client_of(server, SMALL).chat(LOOP, max_tokens=4).status == 200

    def without_data() -> list[str]:
        everything_happens(server)
        found = [f"{title}: {text}" for title, text in dashboard_expressions() if not prometheus.query(text)]
        return [each for each in found if not any(part in each for part in UNSEEN)]

    last: list[str] = []

    def complete() -> bool:
        last[:] = without_data()
        return not last

    def faults_are_seen() -> bool:
        everything_happens(server)
        return set(prometheus.firing()) >= FAULTS

    try:
        wait_for(complete, "each expression of the dashboard has data", 90.0)
    except AssertionError as late:
        raise AssertionError("\n".join([str(late), *last])) from None
    wait_for(faults_are_seen, f"these fire: {FAULTS}", 60.0)
    assert prometheus.unhealthy_rules() == {}
    alert = prometheus.firing()["LemonbusEnginesDie"]
    assert re.match(rf"The engine of {LOOP} has died \d+ times in 15 minutes on 127", alert["annotations"]["summary"])
    assert client_of(server, ADMIN).post("/internal/drain", {}).status == 200
    wait_for(lambda: "LemonbusDrained" in prometheus.firing(), "it is drained", SOON)
    server.kill_keeper()
    wait_for(lambda: "LemonbusDown" in prometheus.firing(), "the server is gone", SOON)
