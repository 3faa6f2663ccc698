"""The dashboard, the alerts and the configuration of Prometheus name metrics that exist; each alert fires, and says what to do."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from protocol.messages.node_reports import NodeReport, NodeState
from protocol.models.nodes import NodeFacts
from supervisor.metrics.families import OWN_PREFIX, documented_families, own_families
from supervisor.metrics.server_metrics import ServerMetrics
from supervisor.metrics.snapshot import ServerSnapshot
from tests.support.prometheus import ALERTS, FOLDER, alert_names, dashboard_expressions
from tests.support.proxies import program

ALERTS_TEST = Path(__file__).with_name("alerts_test.yml")
DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "operating.md"
_METRIC = re.compile(r"\blemonbus_\w+")
needs_promtool = pytest.mark.skipif(not program("promtool"), reason="promtool is not installed (make prometheus)")


def existing_names() -> set[str]:
    """Return the names of all series that `/metrics` may have."""
    nodes = [NodeReport(NodeFacts("gpu2"), NodeState.READY)]
    nothing = ServerSnapshot("0", 0.0, 0, [], {}, {}, 0, [], nodes=nodes)
    names = set()
    for families in (documented_families, own_families):
        for family in families(OWN_PREFIX, ServerMetrics(1), nothing):
            suffixes = ("_bucket", "_sum", "_count") if family.type == "histogram" else ("",)
            names |= {f"{family.name}{suffix}" for suffix in suffixes}
    return names


def test_every_metric_that_is_named_exists() -> None:
    named = {name for _, expression in dashboard_expressions() for name in _METRIC.findall(expression)}
    named |= {
        name
        for line in re.findall(r"expr: .*(?:\n          .*)*", ALERTS.read_text())
        for name in _METRIC.findall(line)
    }
    patterns = {"lemonbus_"}
    """Begins a pattern of names."""
    assert named - existing_names() - patterns == set()
    assert len(named) > 30


def test_each_alert_is_documented_and_says_what_to_do() -> None:
    alerts = ALERTS.read_text().split("      - alert: ")[1:]
    row = re.compile(r"^\| `(\w+)` \| (\w+) \| [^|]+ \| \[[^]]+\]\(#[\w-]+\) \|$", re.MULTILINE)
    documented = dict(row.findall(DOCUMENT.read_text()))
    assert documented.keys() == set(alert_names())
    for alert in alerts:
        name = alert.partition("\n")[0]
        assert "          runbook: " in alert, name
        assert "          summary: " in alert, name
        severity = re.search(r"labels: \{severity: (critical|warning|info)\}", alert)
        assert severity, name
        assert documented[name] == severity[1]


@needs_promtool
def test_promtool_accepts_the_files() -> None:
    for words in (
        ["check", "rules", str(ALERTS)],
        ["check", "config", "--syntax-only", str(FOLDER / "prometheus.yml")],
    ):
        done = subprocess.run([program("promtool"), *words], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr


def test_each_alert_has_a_test_in_which_it_fires() -> None:
    tested = ALERTS_TEST.read_text()
    assert re.findall(r"^  - name: (\w+)$", tested, re.MULTILINE) == alert_names()
    assert re.findall(r'alertname="(\w+)"', tested) == alert_names()


@needs_promtool
def test_alerts_fire_when_they_should_and_are_silent_otherwise() -> None:
    done = subprocess.run(
        [program("promtool"), "test", "rules", ALERTS_TEST], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
