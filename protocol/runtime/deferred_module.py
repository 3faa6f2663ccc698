"""A module that is imported when it is first used, whatever imported it."""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import Any


class DeferredModule(ModuleType):
    """Stands for the module of its name; in ``sys.modules`` only while something is imported that may not need it."""

    def __getattr__(self, name: str) -> Any:
        """Return the real module's attribute."""
        if sys.modules.get(self.__name__) is self:
            del sys.modules[self.__name__]
        return getattr(importlib.import_module(self.__name__), name)
