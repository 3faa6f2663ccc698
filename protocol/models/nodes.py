"""Nodes, the machines of a server: what each has, and what a model demands of the one that runs it. Pure.

The head is the node of the keeper, the supervisor and the jobs. A server on one machine has only the head.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from typing import Final

import msgspec

from protocol.failures import printable

HEAD: Final = "head"
"""The name of the node where the supervisor runs."""
NODE_SILENCE_S: Final = 3.0
"""An agent that is silent for this long is lost, and with it every process of its node."""
_NODE_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")


def why_no_node_name(name: str) -> str:
    """Return why a node other than the head cannot have this name; empty if it can."""
    if name == HEAD:
        return f"only the node of the supervisor may be called {HEAD}"
    if not _NODE_NAME.fullmatch(name):
        shown = printable(name, 64)
        return f"{shown!r} cannot be the name of a node: 1 to 63 letters, digits, '.', '_' and '-', with a letter or digit first"
    return ""


class NodeFacts(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a node agent says of its node."""

    name: str
    address: str = ""
    """The host name or address by which other nodes reach it."""
    cpus: int = 0
    devices: list[str] = []
    """The kinds of its devices: values of :class:`~protocol.models.devices.Device`."""
    labels: dict[str, str] = {}
    """What the operator or the cluster engine calls it: ``{"zone": "west"}``."""
    resources: dict[str, float] = {}
    """Custom resources that the cluster engine counts, such as ``{"npu": 1}``."""
    backends: list[str] = []
    """What can run there, each ``RECIPE:BACKEND``."""
    memory: int = 0
    """Bytes of its own memory."""


class NodeNeeds(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a model demands of its node."""

    backends: list[str] = []
    """One of these, each ``RECIPE:BACKEND``; empty: any node will do."""
    devices: list[str] = []
    """One of these kinds of devices; empty: none is needed."""
    labels: dict[str, str] = {}
    resources: dict[str, float] = {}
    nodes: list[str] = []
    """Patterns of names, such as ``gpu-*``; empty: all nodes."""


def unsuitable(needs: NodeNeeds, facts: NodeFacts) -> str:
    """Return why a node cannot run a model, as a clause about the node; empty if it can."""
    if needs.nodes and not any(fnmatchcase(facts.name, pattern) for pattern in needs.nodes):
        return f"its name matches none of {_listed(needs.nodes)}"
    if needs.backends and not set(needs.backends) & set(facts.backends):
        return f"{_listed(needs.backends)} is not installed there"
    if needs.devices and not set(needs.devices) & set(facts.devices):
        return f"it has no device of kind {_listed(needs.devices)}"
    for name, wanted in sorted(needs.labels.items()):
        if facts.labels.get(name) != wanted:
            return f"its label {name} is {_value(facts.labels, name)}, not {wanted}"
    for name, amount in sorted(needs.resources.items()):
        if facts.resources.get(name, 0.0) < amount:
            return f"it has {facts.resources.get(name, 0.0):g} of resource {name}, not {amount:g}"
    return ""


def _listed(words: Iterable[str]) -> str:
    return " or ".join(words)


def _value(labels: Mapping[str, str], name: str) -> str:
    return labels.get(name, "not set")
