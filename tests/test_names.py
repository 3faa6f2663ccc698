"""Names are the field's terms, and prose is plain English: words and phrases that may not come back."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).resolve().parent.parent
PACKAGES: Final = ("protocol", "supervisor", "workers", "gateway", "deploy", "tests")
SOURCES: Final = [path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py"))]
DOCUMENTS: Final = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md")), ROOT / "protocol" / "README.md"]
MODULES: Final = [
    *sorted((ROOT / "gateway" / "page" / "assets").rglob("*.js")),
    *sorted((ROOT / "tests" / "gateway" / "page").glob("*.mjs")),
]
"""Of the page, in JavaScript."""
PROSE: Final = {
    **{package: [path for path in SOURCES if path.relative_to(ROOT).parts[0] == package] for package in PACKAGES},
    "documents": DOCUMENTS,
    "page": MODULES,
}
_JAVASCRIPT_TEXT: Final = re.compile(r"""//.*|"[^"\n]* [^"\n]*"|'[^'\n]* [^'\n]*'|`[^`]* [^`]*`""")

METAPHORS: Final = frozenset(
    [
        "house",
        "room",
        "rooms",
        "door",
        "doors",
        "desk",
        "desks",
        "seat",
        "seats",
        "shelf",
        "shelves",
        "bell",
        "visit",
        "visits",
        "nursery",
        "boss",
        "errand",
        "errands",
    ]
)
"""Words of things that this project does not have. Neither names nor prose may use them."""

NOT_IN_NAMES: Final = METAPHORS | frozenset(
    [
        "whose",
        "whoever",
        "nobody",
        "somebody",
        "anybody",
        "told",
        "tells",
        "said",
        "says",
        "wish",
        "wishes",
        "meant",
        "trouble",
        "heard",
        "surroundings",
        "roster",
        "audience",
        "outlet",
        "guest",
        "stillborn",
        "speak",
        "speaks",
        "goes",
        "looks",
    ]
)
"""Further words that say too little in a name: a message, a reason, a log line or a subscription has a name of its own."""

NOT_IN_PROSE: Final = METAPHORS | frozenset({"whoever", "nobody", "somebody", "anybody", "everybody"})
"""A sentence has a process, a client or a request as its subject."""

UNIDIOMATIC: Final = re.compile(
    r"""
    (?<! there ) \ (is|are|was|were)\ no\ (?!longer|more|other|one|faster|slower|larger|smaller)   # is not a …
    | ,\ too (?=[.;:)]|$)                                                                          # also …
    | \b as\ far\ as \b | (?<! are\ ) all\ the\ same \b | \b not\ to\ be\ had \b | \b upon\ which \b
    | \b of\ one\ that \b | \b that\ of\ which \b | \b another\ one\ than \b | \b (is|are|was)\ told\ of \b
    | \b so\ many \b (?![^.]*\ that\b)                                                                # several …
    | test_\w*(?<!there)_(is|are|was)_no_(?!longer|more)
    """,
    re.VERBOSE | re.IGNORECASE,
)
"""Phrases in the word order of another language, of which a machine can find the most frequent ones without false alarms."""

EXCEPTIONS: Final = frozenset({"tests/test_names.py", "CHANGELOG.md"})
"""This list itself, and the table of the old names."""


def words_of(name: str) -> set[str]:
    """Split ``snake_case`` and ``CamelCase``."""
    return {word.lower() for word in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", name)}


def names_in(path: Path) -> Iterator[str]:
    """Yield every name in a file: of functions, classes, parameters, variables, attributes, and the file itself."""
    yield path.stem
    yield from path.relative_to(ROOT).parts[:-1]
    if not words_of(path.read_text()) & (METAPHORS | NOT_IN_NAMES):
        return  # most files: not one of the words is anywhere in them
    for node in ast.walk(ast.parse(path.read_text())):
        match node:
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name) | ast.arg(arg=name):
                yield name
            case ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()):
                yield name


def prose_in(path: Path) -> Iterator[str]:
    """Yield a file's comments, docstrings and other sentences. Strings without a space are data."""
    if path in MODULES:
        yield from _JAVASCRIPT_TEXT.findall(path.read_text())
        return
    if path.suffix != ".py":
        yield path.read_text()
        return
    if not set(re.findall(r"[a-z]+", path.read_text().lower())) & NOT_IN_PROSE:
        return  # most files
    for token in tokenize.generate_tokens(io.StringIO(path.read_text()).readline):
        if token.type == tokenize.COMMENT or (token.type == tokenize.STRING and " " in token.string):
            yield token.string


def label(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("package", PACKAGES)
def test_names_are_the_fields_terms(package: str) -> None:
    found = {
        f"{label(path)}: {name}"
        for path in SOURCES
        if path.relative_to(ROOT).parts[0] == package and label(path) not in EXCEPTIONS
        for name in names_in(path)
        if words_of(name) & (METAPHORS if name.startswith("test_") else NOT_IN_NAMES)
    }
    assert sorted(found) == []


@pytest.mark.parametrize("package", PROSE)
def test_prose_has_no_metaphors(package: str) -> None:
    found = {
        f"{label(path)}: {word}: {' '.join(text.split())[:100]}"
        for path in PROSE[package]
        if label(path) not in EXCEPTIONS
        for text in prose_in(path)
        for word in set(re.findall(r"[a-z]+", text.lower())) & NOT_IN_PROSE
    }
    assert sorted(found) == []


@pytest.mark.parametrize("package", PROSE)
def test_prose_is_idiomatic(package: str) -> None:
    found = {
        f"{label(path)}: {text[max(0, match.start() - 40) : match.end() + 40]}"
        for path in PROSE[package]
        if label(path) not in EXCEPTIONS
        for text in [re.sub(r"\s+(# )?", " ", path.read_text())]
        for match in UNIDIOMATIC.finditer(text)
    }
    assert sorted(found) == []


def test_the_search_for_phrases_finds_them() -> None:
    wrong = "a playlist is no recording; images are read, too. it is told of downloads; one of so many clients"
    assert [match[0].strip() for match in UNIDIOMATIC.finditer(wrong)] == ["is no", ", too", "is told of", "so many"]
    assert not UNIDIOMATIC.search(
        "there is no slot, it is no longer idle, and it has so many brackets that it is refused"
    )


def test_a_class_name_means_one_thing() -> None:
    """No two files define a class of the same name; private classes are excepted."""
    seen: dict[str, str] = {}
    twice = []
    for path in SOURCES:
        for name in re.findall(r"^class ([A-Za-z]\w*)[(:]", path.read_text(), re.MULTILINE):
            if name in seen:
                twice.append(f"{name}: {seen[name]} and {label(path)}")
            seen[name] = label(path)
    assert twice == []
