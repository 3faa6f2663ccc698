"""A real Prometheus that runs the files of `deploy/monitoring`, and what these files say."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, Self
from urllib.parse import quote

from tests.support.clients.http_client import RawHttpClient
from tests.support.ports import free_port
from tests.support.proxies import ROOT, program
from tests.support.waiting import wait_for

FOLDER: Final = ROOT / "deploy" / "monitoring"
ALERTS: Final = FOLDER / "alerts.yml"
_DASHBOARD: Final = FOLDER / "grafana-dashboard.json"
_VARIABLES: Final = {"$instance": ".+", "$model": ".+", "$__rate_interval": "1m", "$__interval": "1m"}
"""What stands for what Grafana puts into an expression. A label that no series has does not match ``.+``."""


def alert_names() -> list[str]:
    """Return the names of all alerts."""
    return re.findall(r"^      - alert: (\w+)$", ALERTS.read_text(), re.MULTILINE)


def panels() -> list[dict[str, Any]]:
    """Return the panels of the dashboard that show something."""
    return [panel for panel in json.loads(_DASHBOARD.read_text())["panels"] if panel["type"] != "row"]


def dashboard_expressions() -> Iterator[tuple[str, str]]:
    """Yield the title of a panel, or the name of an annotation, and each of its expressions, with the variables filled in."""
    annotations = json.loads(_DASHBOARD.read_text())["annotations"]["list"]
    written = [(each["name"], each["expr"]) for each in annotations]
    written += [(panel["title"], target["expr"]) for panel in panels() for target in panel["targets"]]
    for title, expression in written:
        for variable, value in _VARIABLES.items():
            expression = expression.replace(variable, value)  # noqa: PLW2901 - one after the other
        yield title, expression


class Prometheus:
    """Prometheus with `prometheus.yml` and the alerts, each second and without the alerts' delays. A context manager."""

    def __init__(self, folder: Path, port: int, key: str) -> None:
        """``port``: where lemonbus answers; ``key``: what may read its metrics."""
        self._port = free_port()
        self._client = RawHttpClient(self._port)
        (folder / "lemonbus.key").write_text(key)
        (folder / "alerts.yml").write_text(re.sub(r"^        for: \w+\n", "", ALERTS.read_text(), flags=re.MULTILINE))
        text = (FOLDER / "prometheus.yml").read_text()
        for written, used in (
            ("/etc/prometheus/lemonbus-alerts.yml", str(folder / "alerts.yml")),
            ("/etc/prometheus/lemonbus.key", str(folder / "lemonbus.key")),
            ("127.0.0.1:13305", f"127.0.0.1:{port}"),
            ("interval: 15s", "interval: 1s"),
        ):
            assert written in text, written
            text = text.replace(written, used)
        (folder / "prometheus.yml").write_text(text)
        self._folder = folder

    def __enter__(self) -> Self:
        files = [f"--config.file={self._folder / 'prometheus.yml'}", f"--storage.tsdb.path={self._folder / 'data'}"]
        self._log = (self._folder / "log").open("wb")
        self._process = subprocess.Popen(
            [program("prometheus"), *files, f"--web.listen-address=127.0.0.1:{self._port}", "--log.level=warn"],
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=self._log,
        )
        try:
            wait_for(self._serves, "Prometheus serves", 30.0)
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._end()

    def _end(self) -> None:
        self._process.kill()
        self._process.wait()
        self._client.close()
        self._log.close()

    def _serves(self) -> bool:
        assert self._process.poll() is None, (self._folder / "log").read_text()
        try:
            return self._client.get("/-/ready", patience=2.0).status == 200
        except OSError:
            return False

    def _ask(self, path: str) -> Any:
        answer = self._client.get(path).json()
        assert answer["status"] == "success", answer
        return answer["data"]

    def query(self, expression: str) -> list[float]:
        """Return the present values of an expression, without those that are not a number."""
        found = self._ask(f"/api/v1/query?query={quote(expression)}")["result"]
        return [float(each["value"][1]) for each in found if each["value"][1] != "NaN"]

    def firing(self) -> dict[str, dict[str, Any]]:
        """Return the alerts that fire, by their names."""
        alerts = self._ask("/api/v1/alerts")["alerts"]
        return {alert["labels"]["alertname"]: alert for alert in alerts if alert["state"] == "firing"}

    def unhealthy_rules(self) -> dict[str, str]:
        """Return the alerts that could not be computed, and why."""
        rules = [rule for group in self._ask("/api/v1/rules")["groups"] for rule in group["rules"]]
        assert {rule["name"] for rule in rules} == set(alert_names())
        return {rule["name"]: rule.get("lastError", "") for rule in rules if rule["health"] not in ("ok", "unknown")}
