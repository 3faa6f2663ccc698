"""Which entry a name means, and which names are similar to an unknown one. Pure.

A name is looked up in this order: the registered name itself, an alias of the configuration, an alias of an entry, the
checkpoint of an entry (built-in ones first), the repository of one model of the catalogue, an alias that a user gave.
Then the same is tried without ``:latest``. An alias may have ``-`` instead of ``:``, and a checkpoint of the hub may
begin with ``hf:`` or the hub's host. An unknown name is a ``model_not_found`` failure that names the most similar ones.
"""

from __future__ import annotations

import bisect
import difflib
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final

from protocol.config.api_keys import model_allowed
from protocol.failures import Code, Failure, LemonbusError, printable
from protocol.models import checkpoints
from protocol.models.checkpoints import checkpoint_from_address
from supervisor.models.catalogues.catalogue import MAX_NAME_LENGTH, CatalogueEntry

LATEST: Final = ":latest"
_MAX_MATCHES: Final = 3
_NEIGHBOURS: Final = 100
"""How many names before and after the unknown one, in alphabetical order, are compared with it."""
_MAX_CONTAINING: Final = 50
"""How many names that contain the unknown one are compared with it."""
_COMPARE_ALL: Final = 500
"""Up to this number, all names are compared: one comparison takes about 10 µs, and the supervisor's loop waits for it."""


class SimilarNames:
    """Finds the names that are similar to an unknown one, in a few milliseconds even among tens of thousands."""

    def __init__(self, names: Iterable[str]) -> None:
        """Sort the names once. A lookup compares a bounded number of them."""
        self._names: dict[str, list[str]] = {}
        for name in names:
            self._names.setdefault(_normalized(name), []).append(name)
        self._sorted = sorted(self._names)

    def of(self, name: str) -> list[str]:
        """Return the names that a caller who wrote ``name`` may have meant, best first."""
        if len(name) > MAX_NAME_LENGTH:
            return []
        wanted = _normalized(name)
        containing = [key for key in self._sorted if wanted in key][:_MAX_CONTAINING] if len(wanted) >= 3 else []
        close = difflib.get_close_matches(wanted, self._candidates(wanted, containing), n=_MAX_MATCHES, cutoff=0.6)
        close += [key for key in containing if key not in close]
        return [known for key in close for known in self._names[key]][:_MAX_MATCHES]

    def _candidates(self, wanted: str, containing: list[str]) -> list[str]:
        if len(self._sorted) <= _COMPARE_ALL:
            return self._sorted
        index = bisect.bisect_left(self._sorted, wanted)
        neighbours = self._sorted[max(0, index - _NEIGHBOURS) : index + _NEIGHBOURS]
        return list(dict.fromkeys([*neighbours, *containing]))


def _normalized(name: str) -> str:
    """Return a name without what is often left out: prefix, ``-GGUF``, ``:latest``, case."""
    lowered = name.lower().removesuffix(LATEST).removesuffix("-gguf")
    return lowered.removeprefix("user.").removeprefix("extra.").rsplit("/", 1)[-1]


def bare_checkpoint(name: str) -> str:
    """Return a checkpoint of the hub without its prefix, also for an address; any other name unchanged."""
    try:
        return checkpoint_from_address(name)
    except LemonbusError:
        return name


class NameIndex:
    """Entries by every name that means one. Adding or removing an entry does not rebuild the whole index."""

    def __init__(
        self,
        *sources: Mapping[str, CatalogueEntry],
        aliases: Mapping[str, str] | None = None,
        configured: Mapping[str, str] | None = None,
    ) -> None:
        """Index the entries of all sources by name.

        If two have the same name, the later source wins. The first source is the catalogue.

        ``aliases``: user-given names → the name of the entry that each means. ``configured``: those of the
        configuration → any name of the model that each means.
        """
        self._aliases = aliases or {}
        self._configured = configured or {}
        self._entries: dict[str, CatalogueEntry] = {}
        for source in sources:
            self._entries.update(source)
        self._by_checkpoint = _by_alias_and_checkpoint(self._entries)
        self._by_repository = _by_repository(sources[0] if sources else {})
        self._similar: SimilarNames | None = None
        """Made when the first unknown name is looked up."""

    def entries(self) -> Collection[CatalogueEntry]:
        """Return all entries, in the order of the sources."""
        return self._entries.values()

    def get(self, name: str) -> CatalogueEntry | None:
        """Return the entry with exactly this name, None if there is none."""
        return self._entries.get(name)

    def find(self, name: str) -> CatalogueEntry | None:
        """Return the entry that a name means, or None."""
        for wanted in (name, name.removesuffix(LATEST)):
            found = (
                self._entries.get(wanted)
                or self._find_without_configured(self._configured.get(wanted, ""))
                or self._by_checkpoint.get(bare_checkpoint(wanted))
                or self._by_repository.get(bare_checkpoint(wanted))
                or self._entries.get(self._aliases.get(wanted, ""))
            )
            if found:
                return found
        return None

    def given(self) -> dict[str, list[str]]:
        """Return the names that the configuration and users gave, by the registered names of their models."""
        found: dict[str, list[str]] = {}
        for alias in dict.fromkeys([*self._configured, *self._aliases]):
            entry = self.find(alias)
            if entry is not None and entry.name != alias:
                found.setdefault(entry.name, []).append(alias)
        return found

    def _find_without_configured(self, name: str) -> CatalogueEntry | None:
        """Return the entry for the name of a section of the configuration.

        No section may be named by another section's alias.
        """
        if not name:
            return None
        return (
            self._entries.get(name)
            or self._by_checkpoint.get(bare_checkpoint(name))
            or self._entries.get(self._aliases.get(name, ""))
        )

    def resolve(self, name: str, models: Sequence[str] = ()) -> CatalogueEntry:
        """Return the entry that a name means; raises ``model_not_found`` with the most similar names.

        ``models``: patterns of the models that the caller's key may use, if not all. The failure reveals no others.
        """
        found = self.find(name)
        if found is None:
            raise self.not_found(name, models).raised()
        return found

    def not_found(self, name: str, models: Sequence[str] = ()) -> Failure:
        """Return the failure for a name that means nothing. ``models``: see :meth:`resolve`."""
        if self._similar is None:
            self._similar = SimilarNames(self._entries)
        message = f"Model {printable(name)!r} not found"
        close = [each for each in self._similar.of(name) if model_allowed(models, each)]
        if close:
            message += f"; did you mean {' or '.join(close)}?"
        return Failure(Code.MODEL_NOT_FOUND, message, model=printable(name), param="model")

    def add(self, entry: CatalogueEntry) -> None:
        """Add an entry whose name is its checkpoint. It is not suggested for unknown names before the next removal."""
        self._entries[entry.name] = entry
        self._by_checkpoint.setdefault(entry.name, entry)

    def remove(self, entry: CatalogueEntry) -> None:
        """Remove an entry that was added, unless another one has its name."""
        if self._entries.get(entry.name) is entry:
            del self._entries[entry.name]
            if self._by_checkpoint.get(entry.name) is entry:
                del self._by_checkpoint[entry.name]
            self._similar = None


def _by_alias_and_checkpoint(entries: Mapping[str, CatalogueEntry]) -> dict[str, CatalogueEntry]:
    """Return the entries by their aliases and by each of their checkpoints. What two have in common means the first."""
    found: dict[str, CatalogueEntry] = {}
    for entry in entries.values():
        for alias in entry.aliases:
            found.setdefault(alias, entry)
            found.setdefault(alias.replace(":", "-"), entry)
    for entry in entries.values():
        for checkpoint in (entry.checkpoint, *(source.checkpoint for source in entry.sources)):
            if checkpoint and not entry.path:
                found.setdefault(checkpoint.removeprefix("hf:"), entry)
    return found


def _by_repository(catalogue: Mapping[str, CatalogueEntry]) -> dict[str, CatalogueEntry]:
    """Return the catalogue's entries by their repositories on a hub, if these have a single model: one file has one entry."""
    found: dict[str, CatalogueEntry | None] = {}
    for entry in catalogue.values():
        parsed = [checkpoints.parse(source.checkpoint) for source in entry.sources]
        for repository in {each.repo for each in parsed if isinstance(each, checkpoints.HubCheckpoint)}:
            found[repository] = None if repository in found else entry
    return {repository: entry for repository, entry in found.items() if entry is not None}
