"""A module that is imported when it is first used, whatever imported it."""

from __future__ import annotations

import importlib
import sys
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
