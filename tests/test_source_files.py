"""What every source file must have: a first line, a size to be read, and no name of a recipe that has a folder of its own."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from protocol.models.recipes import DEFAULT_RECIPE
from tests.support.source_code import DEPLOYED, FILES, TESTS, facts, name
from workers.backends.registry import DESCRIPTORS

LONG = 300
"""Lines beyond which a file should probably become a folder: reported."""


TOO_LONG = 400


def test_every_file_says_what_it_is_for() -> None:
    assert [name(path) for path in [*FILES, *DEPLOYED] if not facts(path).has_docstring] == []


def test_files_are_of_a_size_to_be_read() -> None:
    lengths = {name(path): path.read_text().count("\n") for path in [*FILES, *DEPLOYED, *TESTS]}
    for path, lines in sorted(lengths.items(), key=lambda item: -item[1])[:10]:
        print(f"{lines:5} {path}{'  to be split?' if lines > LONG else ''}")
    assert [path for path, lines in lengths.items() if lines > TOO_LONG] == []


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


def test_the_word_flm_stands_in_its_folders_and_two_registries() -> None:
    """A recipe is one folder: its descriptor tells everything that other code has to know of it."""
    own = ("workers/backends/flm/", "workers/jobs/flm/")
    found = {
        name(path): [
            line.strip() for line in path.read_text().splitlines() if re.search("flm|FastFlow", line, re.IGNORECASE)
        ]
        for path in FILES
        if not name(path).startswith(own)
    }
    assert {path: lines for path, lines in found.items() if lines} == {
        "workers/backends/registry.py": [
            "from workers.backends.flm import backend as flm",
            "RECIPES: Final = [llamacpp.RECIPE, whispercpp.RECIPE, sdcpp.RECIPE, flm.RECIPE, *oga.RECIPES]",
        ],
        "workers/jobs/model_programs.py": [
            "from workers.jobs.flm.program import FLM",
            "PROGRAMS: Final[dict[str, ModelProgram]] = {each.scheme: each for each in (FLM,)}",
        ],
    }


@pytest.mark.parametrize("recipe", sorted(DESCRIPTORS))
def test_no_code_asks_for_a_recipe_by_its_name(recipe: str) -> None:
    """The only name outside of the recipes' folders is that of the default recipe, once."""
    wrong = [
        name(path)
        for path in FILES
        if not name(path).startswith(("workers/backends/", f"workers/jobs/{recipe}/"))
        and recipe in path.read_text()
        and recipe in literals(path)
    ]
    assert wrong == (["protocol/models/recipes.py"] if recipe == DEFAULT_RECIPE else [])
