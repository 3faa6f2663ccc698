"""The project's source files, and what each of them imports, for tests of the structure of the code."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("protocol", "supervisor", "workers", "gateway")
FILES = sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))
DEPLOYED = [*sorted((ROOT / "deploy").rglob("*.py")), ROOT / "setup.py"]
TESTS = sorted((ROOT / "tests").rglob("*.py"))
OURS = {*PACKAGES, "tests", "deploy"}


@dataclass(frozen=True)
class SourceFacts:
    """Facts about a file that tests need. The syntax tree itself is not kept, because hundreds of them cost memory and time."""

    has_docstring: bool
    imports: tuple[str, ...]
    """Every module that it imports, anywhere in it."""


@cache
def facts(path: Path) -> SourceFacts:
    """Parse a file, once."""
    tree = ast.parse(path.read_text())
    return SourceFacts(ast.get_docstring(tree) is not None, tuple(_imports(path, tree)))


def imports(path: Path) -> tuple[str, ...]:
    """Return every module that a file imports."""
    return facts(path).imports


def statements(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """Yield the statements and all statements inside them: the same that a walk over every expression finds, in a fraction of its time."""
    for statement in body:
        yield statement
        for field in ("body", "orelse", "finalbody"):
            yield from statements(getattr(statement, field, []))
        for part in (*getattr(statement, "handlers", []), *getattr(statement, "cases", [])):
            yield from statements(part.body)


def _imports(path: Path, tree: ast.Module) -> Iterator[str]:
    for node in statements(tree.body):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            assert node.module is not None
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                yield inner if is_module(inner) else node.module


@cache
def is_module(dotted: str) -> bool:
    """Return whether one of our modules has this name."""
    package, _, rest = dotted.partition(".")
    if package not in OURS:
        return False
    path = ROOT.joinpath(package, *rest.split("."))
    return path.with_suffix(".py").exists() or (path / "__init__.py").exists()


def name(path: Path) -> str:
    """Return the path of a file from the root of the project."""
    return str(path.relative_to(ROOT))


def within(module: str, package: str) -> bool:
    """Return whether a module is this package or in it."""
    return module == package or module.startswith(package + ".")


def literals(path: Path) -> set[str]:
    """Return the strings of a file that are not docstrings."""
    nodes = list(ast.walk(ast.parse(path.read_text())))
    docstrings = {
        id(node.value) for node in nodes if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }
    return {
        node.value
        for node in nodes
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings
    }
