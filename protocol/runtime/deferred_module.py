"""Modules that are imported when they are first used, whatever imported them."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any, Final

_MODULE_ATTRIBUTES: Final = frozenset({"__all__", "__file__", "__path__", "__version__"})


class DeferredModule(ModuleType):
    """Stands for the module of its name; in ``sys.modules`` only while something is imported that may not need it."""

    def __getattr__(self, name: str) -> Any:
        """Return the real module's attribute; of its private ones only those that say something about a module.

        Tools look for others in every object that they find, pytest and `inspect` for example: none of those has it.
        """
        if name.startswith("_") and name not in _MODULE_ATTRIBUTES:
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}, or it is not imported yet")
        if sys.modules.get(self.__name__) is self:
            del sys.modules[self.__name__]
        return getattr(importlib.import_module(self.__name__), name)


@contextmanager
def importing_without(*names: str, absent: Collection[str] = ()) -> Iterator[None]:
    """Let a library be imported inside the block without modules that it imports and that we may never use.

    ``names``: modules that are imported when they are first used.  ``absent``: modules that the library can do without;
    it finds none of them, although they may be installed.  What is imported already stays as it is.
    """
    wanted: dict[str, Any] = {name: DeferredModule(name) for name in names} | dict.fromkeys(absent)
    stand_ins = {name: module for name, module in wanted.items() if name not in sys.modules}
    sys.modules.update(stand_ins)
    try:
        yield
    finally:
        for name, module in stand_ins.items():
            if name in sys.modules and sys.modules[name] is module:
                del sys.modules[name]
