"""How the supervisor's components are made: what a handler depends on is private, and long lists of arguments have names."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from tests.support.source_code import FILES, name


def handler_classes(tree: ast.Module) -> Iterator[ast.ClassDef]:
    """Return the classes with a table of handlers."""
    for node in tree.body:
        if isinstance(node, ast.ClassDef) and any(
            isinstance(each, ast.FunctionDef) and each.name == "handlers" for each in node.body
        ):
            yield node


def exposed_dependencies(handler: ast.ClassDef) -> list[str]:
    """Return the public names of what a class was given: its fields, and parameters that its constructor keeps."""
    found = [
        node.target.id for node in handler.body if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
    ]
    for constructor in handler.body:
        if isinstance(constructor, ast.FunctionDef) and constructor.name == "__init__":
            given = {each.arg for each in (*constructor.args.args, *constructor.args.kwonlyargs)}
            for target, value in assignments(constructor):
                if isinstance(target, ast.Attribute) and isinstance(value, ast.Name) and value.id in given:
                    found.append(target.attr)
    return [each for each in found if not each.startswith("_")]


def assignments(function: ast.FunctionDef) -> Iterator[tuple[ast.expr, ast.expr]]:
    """Return each target with its value, those of tuples one by one."""
    for node in ast.walk(function):
        for target in node.targets if isinstance(node, ast.Assign) else ():
            if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
                yield from zip(target.elts, node.value.elts, strict=True)
            else:
                yield target, node.value


MOST_BY_POSITION = 5
"""Arguments that a call may have without their names. A reader cannot tell more of them apart."""


def long_calls(tree: ast.Module) -> list[str]:
    """Return the calls with more arguments by position than that."""
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and len(node.args) > MOST_BY_POSITION]
    return [f"{call.lineno}: {ast.unparse(call.func)}" for call in calls]


def test_the_arguments_of_long_calls_are_named() -> None:
    found = {name(path): long_calls(ast.parse(path.read_text())) for path in FILES}
    assert {path: calls for path, calls in found.items() if calls and path.startswith("supervisor/")} == {}


def test_long_calls_are_found() -> None:
    calls = "f(1, 2, 3, 4, 5)\nf(1, 2, 3, 4, 5, g(1, 2, 3, 4, 5, 6))\nf(1, a=2, b=3, c=4, d=5, e=6)\n"
    assert long_calls(ast.parse(calls)) == ["2: f", "2: g"]


def test_what_a_handler_depends_on_is_private() -> None:
    found: dict[str, list[str]] = {}
    for path in FILES:
        if name(path).startswith("supervisor/"):
            for handler in handler_classes(ast.parse(path.read_text())):
                found[f"{name(path)}: {handler.name}"] = exposed_dependencies(handler)
    assert len(found) > 15
    assert {handler: exposed for handler, exposed in found.items() if exposed} == {}


def test_public_dependencies_are_found() -> None:
    source = """
@dataclass
class AsFields:
    loop: Loop
    _bus: Bus
    def handlers(self): ...

class AsAttributes:
    def __init__(self, loop: Loop, bus: Bus, *, scheduler: Scheduler) -> None:
        self.loop, self._bus = loop, bus
        self.scheduler = self.view = scheduler
        self.on_end = lambda: None
    def handlers(self): ...

class NoHandler:
    loop: Loop
"""
    classes = handler_classes(ast.parse(source))
    assert [(each.name, exposed_dependencies(each)) for each in classes] == [
        ("AsFields", ["loop"]),
        ("AsAttributes", ["loop", "scheduler", "view"]),
    ]
