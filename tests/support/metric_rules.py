"""The rules for names and forms of metrics that `promtool check metrics` applies, for machines that do not have it."""

from __future__ import annotations

import re
import shutil
import subprocess

from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families

PROMTOOL = shutil.which("promtool")
UNITS = {
    *("milliseconds", "microseconds", "nanoseconds", "minutes", "hours", "days", "weeks", "kilobytes", "megabytes"),
    *("gigabytes", "terabytes", "bits", "kilobits", "megabits", "percent", "percents", "fahrenheit", "milliwatts"),
}
"""Units for which there is a base unit: seconds, bytes, a ratio."""
ABBREVIATIONS = {"s", "ms", "us", "ns", "sec", "b", "kb", "mb", "gb", "tb", "pb", "m", "h", "d"}
TYPES = {"counter", "gauge", "histogram", "summary"}


def broken_rules(text: str) -> list[str]:
    """Return what is wrong with a text in Prometheus's format, a line for each."""
    helped = set(re.findall(r"^# HELP (\S+) \S", text, re.MULTILINE))
    found = []
    for family in text_string_to_metric_families(text):
        if helped.isdisjoint({family.name, f"{family.name}_total"}):
            found.append(f"{family.name}: no help text")
        found += [f"{family.name}: {problem}" for problem in _problems(family)]
    names = re.findall(r"^# TYPE (\S+) (\w+)$", text, re.MULTILINE)
    found += [
        f"{name}: a counter's name ends with _total"
        for name, kind in names
        if kind == "counter" and not name.endswith("_total")
    ]
    found += [
        f"{name}: only a counter's name ends with _total"
        for name, kind in names
        if kind != "counter" and name.endswith("_total")
    ]
    return found


def _problems(family: Metric) -> list[str]:
    words = family.name.split("_")
    labels = {label for sample in family.samples for label in sample.labels}
    checks = {
        "a colon": ":" in family.name,
        "an upper-case letter": any(re.search("[A-Z]", each) for each in (family.name, *labels)),
        "a unit that is not a base unit": bool(UNITS.intersection(words)),
        "an abbreviated unit": bool(ABBREVIATIONS.intersection(words)),
        "its type in its name": bool(TYPES.intersection(words)),
        "a histogram's suffix": family.type != "histogram" and family.name.endswith(("_bucket", "_count", "_sum")),
        "the label le": family.type != "histogram" and "le" in labels,
        "the label quantile": family.type != "summary" and "quantile" in labels,
    }
    return [f"has {problem}" for problem, wrong in checks.items() if wrong]


def promtool_problems(text: str) -> str:
    """Return what promtool says of a text; empty if it is content, or not installed."""
    if PROMTOOL is None:
        return ""
    done = subprocess.run(
        [PROMTOOL, "check", "metrics"], input=text, capture_output=True, text=True, timeout=60, check=False
    )
    return done.stdout + done.stderr + (f"exit {done.returncode}" if done.returncode else "")
