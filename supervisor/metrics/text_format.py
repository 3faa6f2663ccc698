"""Prometheus's text format (version 0.0.4), written without a delay that others would notice. Pure.

A server with a hundred models has six thousand lines. prometheus_client takes ten times as long for them, and the
supervisor does nothing else meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache
from typing import NamedTuple

from supervisor.metrics.accumulators import Distribution, Labels

ShownModel = Callable[[str], str | None]
"""Model → the name that it is shown with; None: it is hidden."""


class Family(NamedTuple):
    """The series of one name."""

    name: str
    """As it is shown: that of a counter ends with ``_total``."""
    type: str
    documentation: str
    labels: Labels = ()
    """Their names."""
    values: Mapping[Labels, float] = {}
    distributions: Mapping[Labels, Distribution] = {}
    """Of a histogram, in place of values."""
    bounds: tuple[float, ...] = ()


def encode(families: Iterable[Family], shown_model: ShownModel) -> bytes:
    """Return the text."""
    return "".join(line for family in families for line in _lines(family, shown_model)).encode()


def _lines(family: Family, shown_model: ShownModel) -> Iterator[str]:
    name = family.name
    yield f"# HELP {name} {family.documentation}\n# TYPE {name} {family.type}\n"
    model = family.labels.index("model") if "model" in family.labels else -1
    for labels, value in family.values.items():
        text = _label_text(family.labels, labels, model, shown_model)
        if text is not None:
            yield f"{name}{{{text}}} {_number(value)}\n" if text else f"{name} {_number(value)}\n"
    if not family.distributions:
        return
    bounds = [*map(_number, family.bounds), "+Inf"]
    for labels, distribution in family.distributions.items():
        text = _label_text(family.labels, labels, model, shown_model)
        if text is None:
            continue
        before, own = (f"{text},", f"{{{text}}}") if text else ("", "")
        below = 0
        for bound, count in zip(bounds, distribution.counts, strict=True):
            below += count
            yield f'{name}_bucket{{{before}le="{bound}"}} {_number(below)}\n'
        yield f"{name}_count{own} {_number(below)}\n{name}_sum{own} {_number(distribution.sum)}\n"


def _label_text(names: Labels, values: Labels, model: int, shown_model: ShownModel) -> str | None:
    """Return ``a="b",c="d"``; None if the model is hidden. ``model``: the place of its label, -1 if there is none."""
    if model >= 0:
        shown = shown_model(values[model])
        if shown is None:
            return None
        values = (*values[:model], shown, *values[model + 1 :])
    shown_values = zip(names, values, strict=True)
    return ",".join([f'{name}="{_escaped(value)}"' for name, value in shown_values if value or name != "replica"])


@lru_cache(4096)
def _escaped(value: str) -> str:
    return value.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")


@lru_cache(4096)
def _number(value: float) -> str:
    return repr(float(value))
