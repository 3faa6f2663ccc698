"""llama-swap's macros: ``${NAME}``, ``${env.VARIABLE}``, ``${MODEL_ID}`` and ``${PORT}``. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

_MACRO: Final = re.compile(r"\$\{([A-Za-z0-9_.-]{1,128})\}")
_DEEPEST: Final = 20
"""How often the value of a macro may have macros itself."""
PORT: Final = "{port}"
"""What lemonbus replaces by the port."""


class MacroError(ValueError):
    """A macro that is not defined, or that has no end."""


class Macros:
    """The macros of one model."""

    def __init__(self, values: Mapping[str, Any], model: str, environment: Mapping[str, str]) -> None:
        """``values``: those of the file and of the model, which win."""
        self._values = {**values, "MODEL_ID": model, "PORT": PORT, "PID": "${PID}"}
        self._environment = environment
        self.used_variables: list[str] = []
        """The variables of the environment whose values were used."""

    def replaced(self, value: Any, depth: int = 0) -> Any:
        """Return a value with all macros replaced, keys of tables included; raises :class:`MacroError`."""
        match value:
            case str():
                return self._text(value, depth)
            case list():
                return [self.replaced(each, depth) for each in value]
            case dict():
                return {self.replaced(key, depth): self.replaced(each, depth) for key, each in value.items()}
            case _:
                return value

    def _text(self, text: str, depth: int) -> Any:
        whole = _MACRO.fullmatch(text)
        if whole is not None:
            return self._value(whole[1], depth)
        return _MACRO.sub(lambda found: str(self._value(found[1], depth)), text)

    def _value(self, name: str, depth: int) -> Any:
        if depth > _DEEPEST:
            raise MacroError(f"the macro {name} has no end")
        if name.startswith("env."):
            variable = name.removeprefix("env.")
            if variable not in self._environment:
                raise MacroError(f"the variable {variable} is not set here")
            if variable not in self.used_variables:
                self.used_variables.append(variable)
            return self._environment[variable]
        if name not in self._values:
            raise MacroError(f"the macro {name} is not defined")
        value = self._values[name]
        return value if name == "PID" else self.replaced(value, depth + 1)
