"""Modules that are imported at their first use, whatever imported them."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any, Final

_MODULE_ATTRIBUTES: Final = frozenset({"__all__", "__file__", "__path__", "__version__"})


class DeferredModule(ModuleType):
    """Stands for a module. It is in ``sys.modules`` only while something is imported that may not need that module."""

    def __getattr__(self, name: str) -> Any:
        """Return the real module's attribute. Of private names, only those that describe a module exist.

        Tools such as pytest and `inspect` look for other private names in every object: they find none here.
        """
        if name.startswith("_") and name not in _MODULE_ATTRIBUTES:
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}, or it is not imported yet")
        if sys.modules.get(self.__name__) is self:
            del sys.modules[self.__name__]
        return getattr(importlib.import_module(self.__name__), name)


@contextmanager
def importing_without(*names: str, absent: Collection[str] = ()) -> Iterator[None]:
    """Let a library be imported inside the block without modules that we may never use.

    ``names``: modules that are imported at their first use. ``absent``: modules that the library can do without; it
    finds none of them, even if they are installed. What is already imported stays as it is.
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
