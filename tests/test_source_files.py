"""What every source file must have: a first line, a size to be read, and nothing that only a recipe should know."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from protocol.models.recipes import DEFAULT_RECIPE
from tests.support.source_code import DEPLOYED, FILES, TESTS, facts, literals, name
from workers.backends.registry import DESCRIPTORS, FLAGS

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


RECIPES = (
    *(
        "workers/backends/flm/",
        "workers/backends/kokoro/",
        "workers/backends/llamacpp/",
        "workers/backends/oga/",
        "workers/backends/sdcpp/",
    ),
    *(
        "workers/backends/whispercpp/",
        "workers/backends/llama_server_api.py",
        "workers/backends/openai_server.py",
        "workers/engine_servers/",
        "workers/jobs/flm.py",
    ),
)
"""Places for the texts of engines: the recipes, code that two of them share, our own servers, and jobs for an engine's program."""
OTHER_SPEAKERS = (
    "workers/jobs/pip.py",
    "supervisor/machine/pci.py",
    "gateway/http/bodies/body_errors.py",
)
"""Files that read texts of pip, a driver and msgspec."""
OWN_COMMANDS = ("gateway/", "supervisor/keeper/", "workers/jobs/")
"""Files with a command line of their own, or that start other programs than engines."""
SENTENCE = re.compile(r"[A-Za-z]{3,} [a-z]{2,}")
SEARCHING = frozenset(
    (
        *("compile", "count", "endswith", "find", "findall", "finditer", "fullmatch", "index", "match", "partition"),
        *("removeprefix", "removesuffix", "rpartition", "search", "split", "startswith", "sub"),
    )
)


def looked_for(path: Path) -> set[str]:
    """Return the texts that a file looks for in others: arguments of searching functions, and sides of comparisons."""
    found: list[ast.expr] = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call):
            called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            found += node.args if called in SEARCHING else []
        elif isinstance(node, ast.Compare):
            found += [node.left, *node.comparators]
    constants = [each.value for text in found for each in ast.walk(text) if isinstance(each, ast.Constant)]
    return {str(value) for value in constants if isinstance(value, str | bytes)}


def test_only_recipes_know_what_engines_say() -> None:
    """Shared code knows forms, but no sentences: no two engines use the same ones, and they change with each release."""
    wrong = {
        name(path): sentences
        for path in FILES
        if not name(path).startswith((*RECIPES, *OTHER_SPEAKERS))
        and (sentences := {text for text in looked_for(path) if SENTENCE.search(text)})
    }
    assert wrong == {}


def test_the_search_for_sentences_finds_them(tmp_path: Path) -> None:
    file = tmp_path / "x.py"
    file.write_text('A = re.compile("NPU is in use")\nB = b"queue is full" in line\nprint("this is said, not read")\n')
    assert {text for text in looked_for(file) if SENTENCE.search(text)} == {"NPU is in use", "b'queue is full'"}


def test_only_recipes_know_the_flags_of_engines() -> None:
    """Names with one letter mean something else elsewhere."""
    known = {flag for table in FLAGS.values() for flag in table.names() if len(flag.strip("-")) > 1}
    wrong = {
        name(path): flags
        for path in FILES
        if not name(path).startswith((*RECIPES, *OWN_COMMANDS)) and (flags := literals(path) & known)
    }
    assert wrong == {}


@pytest.mark.parametrize("recipe", sorted(name for name, each in DESCRIPTORS.items() if name not in each.section_keys))
def test_no_code_asks_for_a_recipe_by_its_name(recipe: str) -> None:
    """The only name outside of the recipes' folders is that of the default recipe, once.

    A recipe may have the name of the configuration's key that chooses it, which is asked for.
    """
    wrong = [
        name(path)
        for path in FILES
        if not name(path).startswith(("workers/backends/", f"workers/jobs/{recipe}.py"))
        and recipe in path.read_text()
        and recipe in literals(path)
    ]
    assert wrong == (["protocol/models/recipes.py"] if recipe == DEFAULT_RECIPE else [])
