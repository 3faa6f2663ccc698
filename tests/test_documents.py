"""What the documents say of the code: releases, messages and paths."""

from __future__ import annotations

import importlib
import pkgutil
import re
from pathlib import Path

import protocol
from protocol import RELEASE, VERSION
from protocol.messages.events import EventKind
from protocol.wire import envelope

ROOT = Path(__file__).resolve().parent.parent
PAGE = 150
"""Lines that a newcomer reads."""
DOCUMENTS = [
    *(path for path in sorted(ROOT.glob("*.md")) if path.name != "CHANGELOG.md"),
    *sorted((ROOT / "docs").rglob("*.md")),
    ROOT / "protocol" / "README.md",
]


def test_one_release() -> None:
    assert re.search(rf"^## \[{re.escape(RELEASE)}\]", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)


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


def test_the_architecture_is_one_page() -> None:
    assert len((ROOT / "ARCHITECTURE.md").read_text().splitlines()) <= PAGE
