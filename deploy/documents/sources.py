"""Which files of the repository are pages of the site, and where their links lead there.

Links are written for the repository, where README.md, ARCHITECTURE.md and deploy/ are beside docs/. In the site, these Markdown
files are pages, and any other file to which a page links is shown on a page of its own. So no link leaves the site, and all of
them also work without a network.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Final

DOCUMENTS: Final = {
    "README.md": "index.md",
    "ARCHITECTURE.md": "architecture.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "protocol/README.md": "protocol.md",
}
"""Documents outside docs/, and their pages. What links to README gets docs/index.md, which says the same."""

_FENCED: Final = re.compile(r"^(```|~~~).*?^\1[ \t]*$", re.MULTILINE | re.DOTALL)
_LINK: Final = re.compile(r"(?<=\]\()([^)\s#]+)(?=[)\s#])")
_PATH_AS_TEXT: Final = re.compile(r"\[[\w./-]+\.md\]\($")
_NOT_A_FILE: Final = re.compile(r"[a-z][a-z0-9+.-]*:|/")
_LANGUAGES: Final = {".yml": "yaml", ".service": "ini", ".conf": "ini", ".py": "python"}
_TABLE: Final = str.maketrans("", "", "`*")


def page_of(path: str) -> str:
    """Return where the site has a file of the repository: ``deploy/x.yaml`` → ``files/deploy/x.yaml.md``."""
    if path.startswith("docs/"):
        return path.removeprefix("docs/")
    return DOCUMENTS.get(path) or f"files/{path}.md"


def source_of(page: str) -> str:
    """Return the repository's file of a page, the reverse of :func:`page_of`."""
    for path, document in DOCUMENTS.items():
        if page == document and page != "index.md":
            return path
    return page.removeprefix("files/").removesuffix(".md") if page.startswith("files/") else f"docs/{page}"


def links(text: str, path: str, root: Path) -> Iterator[tuple[re.Match[str], str]]:
    """Yield the links of a document to files that exist, each with the file's path from the root."""
    code = [match.span() for match in _FENCED.finditer(text)]
    for link in _LINK.finditer(text):
        if _NOT_A_FILE.match(link[1]) or any(start < link.start() < end for start, end in code):
            continue
        target = posixpath.normpath(posixpath.join(posixpath.dirname(path), link[1]))
        if not target.startswith("../") and (root / target).is_file():
            yield link, target


def rewritten(text: str, path: str, root: Path) -> str:
    """Return a document with the links of its page in the site. Links to what does not exist stay, for MkDocs to refuse them.

    A link whose text is the path of a document, such as ``[docs/keys.md](docs/keys.md)``, gets the document's title.
    """
    end, parts = 0, []
    for link, target in links(text, path, root):
        before = text[end : link.start()]
        if target.endswith(".md") and (path_as_text := _PATH_AS_TEXT.search(before)):
            before = f"{before[: path_as_text.start()]}[{_title(root / target)}]("
        parts += [before, posixpath.relpath(page_of(target), posixpath.dirname(page_of(path)))]
        end = link.end()
    return "".join([*parts, text[end:]])


def _title(document: Path) -> str:
    return document.read_text("utf-8").split("\n", 1)[0].removeprefix("# ")


def shown_files(root: Path) -> set[str]:
    """Return the files that pages link to and that are not documents themselves, as paths from the root."""
    documents = [*sorted((root / "docs").rglob("*.md")), *(root / path for path in DOCUMENTS)]
    targets = {
        target
        for document in documents
        for _, target in links(document.read_text("utf-8"), document.relative_to(root).as_posix(), root)
    }
    return {path for path in targets if not path.startswith("docs/") and path not in DOCUMENTS}


def shown(path: str, root: Path) -> str:
    """Return the page that shows a file."""
    text = (root / path).read_text("utf-8")
    suffix = PurePosixPath(path).suffix
    fence = "`" * max(3, 1 + max(map(len, re.findall("`+", text)), default=0))
    return f"# {path}\n\n{fence}{_LANGUAGES.get(suffix, suffix[1:])}\n{text.rstrip()}\n{fence}\n"


def slug(heading: str, separator: str = "-") -> str:
    """Return the anchor of a heading as code hosts make it, so that one link works in the repository and in the site."""
    return re.sub(r"[^\w\- ]", "", heading.translate(_TABLE).strip().lower()).replace(" ", separator)
