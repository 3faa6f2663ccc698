"""The help text of each setting, taken from the docstring below its field in the source of ``Settings``.

Only the command line's help uses this: reading the source takes longer than resolving the settings.
"""

from __future__ import annotations

import ast
import inspect
import itertools
import re
from collections.abc import Container
from functools import partial

from protocol.config.settings import Settings


def setting_help() -> dict[str, str]:
    """Return the help text of each setting by its name. References to other settings become their flags."""
    found: dict[str, str] = {}
    for base in reversed(Settings.__mro__):
        if base.__module__.partition(".")[0] == Settings.__module__.partition(".")[0]:
            tree = ast.parse(inspect.getsource(base))
            found |= _texts_below_fields(tree.body[0]) if isinstance(tree.body[0], ast.ClassDef) else {}
    return {name: re.sub(r"``(.*?)``", partial(_plain, found), text) for name, text in found.items()}


def _texts_below_fields(declaration: ast.ClassDef) -> dict[str, str]:
    found: dict[str, str] = {}
    for node, below in itertools.pairwise(declaration.body):
        if (
            isinstance(node, ast.AnnAssign)
            and isinstance(node.target, ast.Name)
            and isinstance(below, ast.Expr)
            and isinstance(below.value, ast.Constant)
        ):
            found[node.target.id] = " ".join(str(below.value.value).split())
    return found


def _plain(known: Container[str], quoted: re.Match[str]) -> str:
    return f"--{quoted[1].replace('_', '-')}" if quoted[1] in known else quoted[1]
