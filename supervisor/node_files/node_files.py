"""Which node has the files of which model, and under which paths. Pure; in memory only.

A node learns it from its disk, so a supervisor that takes over asks again. The head has the files of every model that can be loaded.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple

from protocol.models.node_paths import localized, named_paths
from protocol.models.nodes import HEAD
from protocol.models.recipes import ModelSpec


class FilesKey(NamedTuple):
    """The files of a spec: two specs with the same key need the same files."""

    paths: tuple[str, ...]
    """On the head. A model that its recipe's own program keeps has none: that program fetches it, on each node."""
    size: int


class NodeCopy(NamedTuple):
    """The files of a model on one node."""

    model: str
    paths: Mapping[str, str]
    """Path on the head → path on the node."""
    shared: frozenset[str] = frozenset()
    """Paths on the node that were there before, in a folder that it may share with the head: not a copy to remove."""


def files_key(spec: ModelSpec) -> FilesKey:
    """Return what identifies the files that a spec needs."""
    return FilesKey(tuple(named_paths(spec)), spec.size)


class NodeFiles:
    """What the nodes have, as they reported it."""

    def __init__(self) -> None:
        """No other node has any file."""
        self._nodes: dict[str, dict[FilesKey, NodeCopy]] = {}
        self._distrusted: dict[tuple[str, FilesKey], str] = {}
        """Node and files that it has sent with other bytes than the head's → the model. Also while the node is away."""

    def has(self, node: str, spec: ModelSpec) -> bool:
        """Return whether a node has every file that an engine of this model needs."""
        if node == HEAD or spec.elsewhere:
            return True
        key = files_key(spec)
        return not key.paths or (key in self._nodes.get(node, {}) and (node, key) not in self._distrusted)

    def nodes_with(self, spec: ModelSpec) -> list[str]:
        """Return the other nodes that have every file of a model."""
        key = files_key(spec)
        return sorted(
            node for node, copies in self._nodes.items() if key in copies and (node, key) not in self._distrusted
        )

    def distrust(self, node: str, spec: ModelSpec) -> None:
        """Note that a node has other bytes of a model than the head. An engine that runs there keeps its paths."""
        self._distrusted[node, files_key(spec)] = spec.name

    def is_distrusted(self, node: str, spec: ModelSpec) -> bool:
        """Return whether the copy of a node must be compared before the next load there."""
        return (node, files_key(spec)) in self._distrusted

    def trust(self, node: str, spec: ModelSpec) -> None:
        """Note that what a node has was compared with the head's digests."""
        self._distrusted.pop((node, files_key(spec)), None)

    def problems(self) -> list[str]:
        """Return which nodes have other bytes than the head, as sentences."""
        return [
            f"node {node} has other bytes of {model} than the head: it fetches them again before the next load there; if the"
            " model is loaded there now, unload it"
            for (node, _), model in sorted(self._distrusted.items())
        ]

    def by_model(self) -> dict[str, list[str]]:
        """Return model → the other nodes that have its files."""
        found: dict[str, list[str]] = {}
        for node, copies in sorted(self._nodes.items()):
            for model in {copy.model for copy in copies.values()}:
                found.setdefault(model, []).append(node)
        return found

    def paths(self, node: str, spec: ModelSpec) -> Mapping[str, str]:
        """Return path on the head → path on the node, for the files of a model; empty on the head."""
        copy = self._nodes.get(node, {}).get(files_key(spec)) if node != HEAD else None
        return copy.paths if copy is not None else {}

    def localized(self, spec: ModelSpec, node: str) -> ModelSpec:
        """Return a spec with the paths of a node."""
        return localized(spec, self.paths(node, spec))

    def found(
        self, node: str, spec: ModelSpec, paths: Mapping[str, str], shared: Collection[str] = frozenset()
    ) -> None:
        """Note that a node has the files of a model. ``shared``: see :class:`NodeCopy`."""
        self._nodes.setdefault(node, {})[files_key(spec)] = NodeCopy(spec.name, paths, frozenset(shared))

    def node_left(self, node: str) -> None:
        """Forget what a node has."""
        self._nodes.pop(node, None)

    def take(self, model: str) -> dict[str, list[NodeCopy]]:
        """Forget the files of a deleted model, and return them by node."""
        taken: dict[str, list[NodeCopy]] = {}
        for node, copies in self._nodes.items():
            for key in [key for key, copy in copies.items() if copy.model == model]:
                taken.setdefault(node, []).append(copies.pop(key))
        self._distrusted = {each: name for each, name in self._distrusted.items() if name != model}
        return taken
