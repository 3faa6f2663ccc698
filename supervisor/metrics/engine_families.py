"""The metric families of engines, with the name of their model as a label. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final

from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from supervisor.metrics.snapshot import EngineMetrics

MAX_SAMPLES: Final = 500
"""Samples of one engine; llama-server has about a dozen."""
_COUNTER: Final = re.compile(r"^# TYPE ([^ \n]+) counter$", re.MULTILINE)
_OWN_PREFIXES: Final = ("lemonbus_", "mullama_")


def merge_engine_families(engines: Iterable[EngineMetrics]) -> list[Metric]:
    """Return the families of all engines. An answer that is too long, or not in Prometheus's format, is left out."""
    merged: dict[str, Metric] = {}
    for engine in engines:
        for family in _families(engine.text or b""):
            name = family.name.replace(":", "_")
            if name.startswith(_OWN_PREFIXES):
                continue
            documentation = family.documentation or "A metric of the engine"
            target = merged.setdefault(name, Metric(name, documentation, family.type))
            if target.type == family.type:
                labels = {"model": engine.model, **({"replica": str(engine.replica)} if engine.replica else {})}
                target.samples += [_with_labels(sample, labels) for sample in family.samples]
    return list(merged.values())


def _families(text: bytes) -> list[Metric]:
    try:
        families = list(text_string_to_metric_families(_COUNTER.sub(_counter_line, text.decode())))
    except (ValueError, KeyError, IndexError):
        return []
    return families if sum(len(family.samples) for family in families) <= MAX_SAMPLES else []


def _counter_line(line: re.Match[str]) -> str:
    """Return the line as a gauge's if the name does not end like a counter's: the parser would change the name."""
    return line[0] if line[1].endswith("_total") else f"# TYPE {line[1]} gauge"


def _with_labels(sample: Sample, labels: Mapping[str, str]) -> Sample:
    """Return a sample of an engine. Colons in names are for the rules of a Prometheus server, not for what it scrapes."""
    return sample._replace(name=sample.name.replace(":", "_"), labels={**sample.labels, **labels})
