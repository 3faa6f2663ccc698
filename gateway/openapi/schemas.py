"""JSON schemas of the declared types, collected so that each appears once in the document."""

from __future__ import annotations

from typing import Any, Final

import msgspec

_TEMPLATE: Final = "#/components/schemas/{name}"


class Schemas:
    """The types that a document refers to."""

    def __init__(self) -> None:
        """Start with none."""
        self._found: dict[str, dict[str, Any]] = {}
        self._names: dict[Any, dict[str, Any]] = {}

    def of(self, kind: Any) -> dict[str, Any]:
        """Return the schema of a type, or of a tuple of alternative types; raises ValueError if two types share a name."""
        if isinstance(kind, tuple):
            return {"anyOf": [self.of(each) for each in kind]}
        if kind not in self._names:
            (self._names[kind],), found = msgspec.json.schema_components([kind], ref_template=_TEMPLATE)
            for name, schema in found.items():
                shown = _in_markdown(schema)
                if self._found.setdefault(name, shown) != shown:
                    raise ValueError(f"two documented types are called {name}")
        return self._names[kind]

    def components(self) -> dict[str, Any]:
        """Return the schemas by their names."""
        return dict(sorted(self._found.items()))


def _in_markdown(schema: dict[str, Any]) -> dict[str, Any]:
    """Return a schema with its description in Markdown, and without its title, which is its name."""
    shown = {key: value for key, value in schema.items() if key != "title"}
    if "description" in shown:
        shown["description"] = shown["description"].replace("``", "`")
    return shown
