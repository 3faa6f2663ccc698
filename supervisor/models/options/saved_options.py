"""``recipe_options.json``: the load options that clients have saved for models.

Request > ``recipe_options.json`` > settings. A wrong option in a request is the caller's error. A wrong option in the
file is reported and left out, so that a typing error costs one option, not the server.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from protocol.failures import LemonbusError, printable, write_failure
from protocol.models.recipes import AUTOMATIC, RecipeDescriptor
from supervisor.models.options.load_options import Options, check, check_option
from supervisor.persistence.state_files import FinishWrite, StateFile, finish_write

FILE: Final = "recipe_options.json"
_UNSET: Final = (None, "", -1, AUTOMATIC)


class SavedOptions:
    """The saved options, by the registered name of their model."""

    def __init__(
        self,
        path: Path,
        descriptor_of: Callable[[str], RecipeDescriptor],
        directories: Sequence[str] = (),
        finish: FinishWrite = finish_write,
    ) -> None:
        """Nothing is read yet. ``descriptor_of``: registered name → its recipe's descriptor, or a failure.

        ``directories``: see :func:`~supervisor.models.options.load_options.file_directories`. What is
        saved came from clients, so their rules apply to it as well.
        """
        self._file = StateFile(path, finish)
        self._directories = directories
        self._descriptor_of = descriptor_of
        self._items: dict[str, Any] = {}
        self.problems: list[str] = self._file.problems
        """Errors in the file. The reader of this list empties it."""

    def refresh(self) -> None:
        """Read the file if it was changed. A broken one is moved aside."""
        if not self._file.changed():
            return
        if (items := self._file.load(dict[str, Any])) is not None:
            self._items = items
        for name, item in self._items.items():
            if not isinstance(item, dict):
                self.problems.append(f"{FILE}: {printable(name)}: expected an object")

    def check(self, model: str, given: Mapping[str, Any]) -> Options:
        """Return a request's options in the recipe's form; raises ``invalid_request``."""
        return check(self._descriptor_of(model), given, self._directories)

    def of(self, model: str) -> Options:
        """Return what was saved for a model. Options that its recipe does not accept are reported and left out."""
        return self.usable(model, self.item(model))

    def item(self, model: str) -> dict[str, Any]:
        """Return what the file has for a model, whether its recipe accepts it or not."""
        self.refresh()
        item = self._items.get(model)
        return dict(item) if isinstance(item, dict) else {}

    def usable(self, model: str, item: Mapping[str, Any]) -> Options:
        """Return the options that the model's recipe accepts. The others are reported."""
        descriptor = self._descriptor_of(model)
        good: Options = {}
        for name, value in item.items():
            try:
                good[name] = check_option(descriptor, name, value, self._directories)
            except LemonbusError as problem:
                self.problems.append(f"{FILE}: {printable(model)}: {problem}")
        return good

    def saved(self) -> dict[str, Options]:
        """Return what was saved for each model, if it may be options; nothing is reported."""
        self.refresh()
        return {
            model: {name: value for name, value in item.items() if isinstance(value, int | float | str)}
            for model, item in self._items.items()
            if isinstance(item, dict)
        }

    def save(self, model: str, given: Mapping[str, Any]) -> None:
        """Replace what is saved for a model by a request's options. Without options, remove it.

        Raises ``invalid_request``, and ``internal_error`` if the file cannot be written.
        """
        good = self.check(model, given)
        self.refresh()
        items = {name: item for name, item in self._items.items() if name != model}
        if good:
            items[model] = good
        self._write(model, items)

    def changed(self, model: str, changes: Mapping[str, Any]) -> dict[str, Any]:
        """Return what would be saved for a model after a change; raises ``invalid_request``.

        As in Lemonade, None and an empty text remove an option, and so do -1 and ``auto`` where they do not mean that a
        number is chosen. Saved options that the recipe does not have stay, and can be removed.
        """
        descriptor, result = self._descriptor_of(model), self.item(model)
        for name, value in changes.items():
            option = descriptor.option(name)
            chosen = option is not None and option.automatic and value in (-1, AUTOMATIC)
            if value in _UNSET and not chosen and (option is not None or name in result):
                result.pop(name, None)
            else:
                result[name] = check_option(descriptor, name, value, self._directories)
        return result

    def replace(self, model: str, item: Mapping[str, Any]) -> None:
        """Write what :meth:`changed` has returned; without options, remove it. Raises ``internal_error``."""
        others = {name: other for name, other in self._items.items() if name != model}
        self._write(model, {**others, model: dict(item)} if item else others)

    def drop(self, model: str) -> None:
        """Remove what is saved for a model; raises like :meth:`save`."""
        self.refresh()
        if model in self._items:
            self._write(model, {name: item for name, item in self._items.items() if name != model})

    def _write(self, model: str, items: dict[str, Any]) -> None:
        try:
            self._file.replace(items)
        except OSError as problem:
            reason = f"the options could not be saved: {problem.strerror}"
            raise write_failure(problem, reason, model).raised() from problem
        self._items = items
