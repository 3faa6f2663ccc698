"""Statements of the documents about the code: releases, messages and paths."""

from __future__ import annotations

import importlib
import json
import pkgutil
import re
from pathlib import Path

import protocol
from deploy.documents.sources import page_of
from protocol import RELEASE, VERSION
from protocol.config.settings import Settings
from protocol.messages.events import EventKind
from protocol.wire import envelope
from tests.support.source_code import DEPLOYED, FILES, TESTS, literals, name

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("protocol", "supervisor", "workers", "gateway")
PAGE = 150
"""Lines that a newcomer reads."""
DOCUMENTS = [
    *(path for path in sorted(ROOT.glob("*.md")) if path.name != "CHANGELOG.md"),
    *sorted((ROOT / "docs").rglob("*.md")),
    ROOT / "protocol" / "README.md",
]


def test_one_release() -> None:
    assert re.search(rf"^## \[{re.escape(RELEASE)}\]", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)


def test_no_conflict_of_a_merge_is_left() -> None:
    marker = re.compile(r"^(<<<<<<< |>>>>>>> |=======$)", re.MULTILINE)
    documents = [*DOCUMENTS, ROOT / "CHANGELOG.md"]
    assert [document.name for document in documents if marker.search(document.read_text())] == []


def test_the_wire_document_names_every_message() -> None:
    for module in pkgutil.walk_packages(protocol.__path__, "protocol."):
        importlib.import_module(module.name)
    text = (ROOT / "protocol" / "README.md").read_text()
    words = set(re.findall(r"`([A-Za-z_]+)`", text))
    assert {*envelope.message_names(), *(kind.name for kind in EventKind)} - words == set()
    assert re.search(rf"\bversion {VERSION}\b", text, re.IGNORECASE)


def test_documents_name_files_that_exist() -> None:
    """A path in backticks, such as ``protocol/failures.py``, must be there; ``RECIPE`` stands for any recipe."""
    pattern = r"`((?:protocol|supervisor|workers|gateway|deploy|tests|docs)/[\w./-]*)`"
    wrong = [
        f"{document.name} names {path}"
        for document in DOCUMENTS
        for path in re.findall(pattern, document.read_text())
        if "RECIPE" not in path and not (ROOT / path).exists()
    ]
    assert wrong == []


def test_links_lead_to_files_that_exist() -> None:
    wrong = [
        f"{document.name} links to {target}"
        for document in DOCUMENTS
        for target in re.findall(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)", document.read_text())
        if not (document.parent / target).exists()
    ]
    assert wrong == []


def test_every_document_is_once_in_the_navigation_of_the_site() -> None:
    """``nav`` in mkdocs.yml: `make docs` fails otherwise."""
    listed = re.findall(r"^ +- (?:.+: )?(\S+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.MULTILINE)
    pages = [path.relative_to(ROOT).as_posix() for path in [*DOCUMENTS, ROOT / "CHANGELOG.md"]]
    assert sorted(listed) == sorted({page_of(path) for path in pages})


def test_the_architecture_is_one_page() -> None:
    assert len((ROOT / "ARCHITECTURE.md").read_text().splitlines()) <= PAGE


def test_docstrings_name_modules_and_files_that_exist() -> None:
    """:mod:`supervisor.handlers` and ``protocol/failures.py`` in a docstring or comment; files move, and outdated names remain."""
    wrong = []
    for top in PACKAGES:
        for file in sorted((ROOT / top).rglob("*.py")):
            text = file.read_text()
            dotted = re.findall(rf":(?:mod|class|func|meth):`~?((?:{'|'.join(PACKAGES)})\.[\w.]+)`", text)
            siblings = re.findall(r":mod:`(\w+)`", text)
            paths = re.findall(r"`([\w/]+\.py)`", text)
            wrong += [f"{file.relative_to(ROOT)} names {name}" for name in dotted if not is_defined(name)]
            wrong += [
                f"{file.relative_to(ROOT)} names {name}"
                for name in siblings
                if name not in PACKAGES and not exists_as_module(file.parent / name)
            ]
            wrong += [f"{file.relative_to(ROOT)} names {path}" for path in paths if not exists_near(file, path)]
    assert wrong == []


def test_every_setting_is_in_a_table_with_its_default() -> None:
    """A row is ``| `first`, `second` | `1`, `2` | …``; directories have no fixed default."""
    documented: dict[str, str] = {}
    header = r"^\| setting \| default \| \|\n\|---\|---\|---\|\n((?:\|.*\n)+)"
    for table in re.findall(header, (ROOT / "docs" / "configuration.md").read_text(), re.MULTILINE):
        for names, defaults in re.findall(r"^\| (.*?) \| (.*?) \|", table, re.MULTILINE):
            settings, values = names.split(", "), defaults.split(", ")
            documented |= zip(settings, values * len(settings) if len(values) == 1 else values, strict=True)
    sections = ("models", "defaults", "groups", "remotes")
    fields = {f"`{name}`": getattr(Settings(), name) for name in Settings.__struct_fields__ if name not in sections}
    assert documented.keys() == fields.keys()
    wrong = {
        name: documented[name]
        for name, default in fields.items()
        if name not in ("`state_dir`", "`cache_dir`", "`runtime_dir`")
        and json.loads(documented[name].strip("`")) != default
    }
    assert wrong == {}


def test_strings_name_modules_that_exist() -> None:
    """``"workers.jobs.probe"``: to start it, to look for its process, or to replace a part of it in a test."""
    dotted = re.compile(rf"(?:{'|'.join(PACKAGES)}|tests)(?:\.(?!(?:py|md)$)\w+)+")
    files = [*FILES, *DEPLOYED, *TESTS]
    named = [(name(file), text) for file in files for text in literals(file) if dotted.fullmatch(text)]
    assert len(named) > 20, "the test finds none"
    assert [each for each in named if not is_defined(each[1])] == []


def exists_as_module(path: Path) -> bool:
    return path.with_suffix(".py").exists() or (path / "__init__.py").exists() or (path / "__main__.py").exists()


def exists_near(file: Path, path: str) -> bool:
    """Return whether a path is one from the root, or from a folder of the file, or a name in a folder beside it."""
    above = any((folder / path).exists() for folder in file.parents if folder.is_relative_to(ROOT))
    return above or any((folder / path).exists() for folder in file.parent.parent.iterdir() if folder.is_dir())


def is_defined(dotted: str) -> bool:
    """Return whether a dotted name is a module, or a name or a member that a module defines."""
    parts = dotted.split(".")
    for end in range(len(parts), 0, -1):
        module = ROOT.joinpath(*parts[:end])
        if exists_as_module(module):
            break
    rest = parts[end:]
    source = module.with_suffix(".py")
    if not rest or not source.exists():
        return not rest
    text = source.read_text()
    return all(
        re.search(rf"^\s*(?:(?:class|def) |self\.)?{name}\b|^from .* import .*\b{name}\b", text, re.MULTILINE)
        for name in rest
    )
