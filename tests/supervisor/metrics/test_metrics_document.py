"""docs/metrics.md is true: it has each metric of `/metrics` with its type and labels, and no other, and says what to do."""

from __future__ import annotations

import re
from pathlib import Path

from protocol.messages.batches import BatchFigures
from protocol.messages.node_reports import NodeReport, NodeState
from protocol.models.nodes import NodeFacts
from supervisor.metrics.exposition import render
from supervisor.metrics.families import MULLAMA_PREFIX, OWN_PREFIX, documented_families, own_families
from supervisor.metrics.server_metrics import ServerMetrics
from supervisor.metrics.snapshot import ServerSnapshot

DOCUMENT = (Path(__file__).resolve().parents[3] / "docs" / "metrics.md").read_text()
EMPTY = ServerSnapshot("1", 1.0, 0, [], {}, {}, 0, [])
SEVERAL = EMPTY._replace(nodes=[NodeReport(NodeFacts("gpu2"), NodeState.READY)])

Described = dict[str, tuple[str, set[str]]]
"""Name → type and labels."""


def rows(heading: str) -> Described:
    """Return what the table below a heading says; ``…_x`` in a row is another end of the row's first name."""
    text = DOCUMENT.split(f"## {heading}\n")[1].split("\n## ")[0]
    found: Described = {}
    for line in re.findall(r"^\| `.*", text, re.MULTILINE):
        names, kind, labels = (cell.strip() for cell in line.split("|")[1:4])
        given = re.findall(r"`([^`]+)`", names)
        stem = given[0].removesuffix("_prompt_tokens_total")
        described = (kind, set(re.findall(r"`(\w+)`", labels)))
        found |= {f"{stem}{name[1:]}" if name.startswith("…") else name: described for name in given}
    return found


def test_the_document_has_each_metric_with_its_type_and_labels() -> None:
    metrics = ServerMetrics()
    families = [*documented_families(OWN_PREFIX, metrics, EMPTY), *own_families(OWN_PREFIX, metrics, EMPTY)]
    real: Described = {family.name: (family.type, set(family.labels)) for family in families}
    mullama = {f"{OWN_PREFIX}{name}": described for name, described in rows("Names that Mullama documents").items()}
    mullama["lemonbus_uptime_seconds"] = ("gauge", set())
    assert mullama | rows("Our own names") == real


def test_it_says_what_several_machines_add_to_them() -> None:
    one, several = (
        {family.name: (family.type, set(family.labels)) for family in own_families(OWN_PREFIX, ServerMetrics(), now)}
        for now in (EMPTY, SEVERAL)
    )
    assert rows("A server over several machines") == {name: several[name] for name in several.keys() - one.keys()}
    labelled = {name for name in one if several[name][1] - one[name][1] == {"node"}}
    assert {name for name in one if several[name] != one[name]} == labelled
    named = ("memory_total", "memory_free", "memory_reading", "device", "worker_memory", "engine_memory")
    assert labelled == {name for name in one if name.startswith(tuple(f"{OWN_PREFIX}{each}_" for each in named))}


def test_each_row_says_what_it_is_and_what_is_to_be_done_when_it_is_unusual() -> None:
    cells = [line.strip("| ").split(" | ") for line in re.findall(r"^\| `.*", DOCUMENT, re.MULTILINE)]
    assert [row[0] for row in cells if len(row) < 4 or not row[-1].strip() or not row[-2].strip()] == []


def test_it_says_what_batches_add() -> None:
    none, some = (
        {family.name: (family.type, set(family.labels)) for family in own_families(OWN_PREFIX, ServerMetrics(), now)}
        for now in (EMPTY, EMPTY._replace(batches=BatchFigures({}, {}, {})))
    )
    assert rows("Batches") == {name: some[name] for name in some.keys() - none.keys()}


def test_only_the_names_of_mullamas_table_come_twice() -> None:
    text = render(ServerMetrics(), EMPTY, with_mullama=True).decode()
    twice = re.findall(rf"^# TYPE {MULLAMA_PREFIX}(\w+)", text, re.MULTILINE)
    assert set(twice) == set(rows("Names that Mullama documents"))
