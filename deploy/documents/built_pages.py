"""The check of a built site: links lead to files and anchors that it has, and no page loads anything from elsewhere.

It reads the HTML, not the Markdown, so it also sees what the theme and the plugins have written, and Markdown that they took for text.
Addresses of other servers must be well-formed; they are not asked.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

_LOADED: Final = frozenset({"audio", "embed", "iframe", "img", "input", "link", "script", "source", "track", "video"})
"""Elements whose address a browser fetches without a click."""
_POLICIES: Final = frozenset({"canonical", "next", "prev"})
"""``<link rel=…>`` that a browser does not fetch."""
_CSS: Final = re.compile(r"(?:@import\s+|url\()[\"']?(?:https?:)?//[^\"')\s]+", re.IGNORECASE)
_MARKDOWN: Final = re.compile(r"^\s*(?:[-*] |1\. |\|.*\|$|```)", re.MULTILINE)
"""The beginning of a list, a table or code. In the site, unlike in the repository, it is text if it continues a paragraph."""
_HOST: Final = re.compile(r"[A-Za-z0-9.-]+|\[[0-9A-Fa-f:.]+\]")


class SitePage(HTMLParser):
    """What a page refers to, and the anchors that it has."""

    def __init__(self, text: str) -> None:
        """Read the whole page."""
        super().__init__()
        self.anchors: set[str] = set()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.markdown: list[str] = []
        self._open: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note the addresses and anchors of an element."""
        if tag in ("p", "pre"):
            self._open.append(tag)
        values = {name: value or "" for name, value in attrs}
        self.anchors |= {values[name] for name in ("id", "name") if name in values}
        if "mermaid" in values.get("class", "").split():
            self.loaded.append("https://unpkg.com/mermaid")  # the theme's script would fetch it
        fetched = tag in _LOADED and values.get("rel") not in _POLICIES
        for name in ("href", "src", "srcset", "poster"):
            if name in values:
                address = values[name].split()[0] if name == "srcset" else values[name]
                (self.loaded if fetched else self.links).append(address)

    def handle_endtag(self, tag: str) -> None:
        """Note the end of a paragraph."""
        if self._open and self._open[-1] == tag:
            self._open.pop()

    def handle_data(self, data: str) -> None:
        """Note what should have been a list or a table."""
        if self._open == ["p"] and "\n" in data and (found := _MARKDOWN.search(data, data.index("\n"))):
            self.markdown.append(found.string[found.start() :].strip().partition("\n")[0])


def problems(site: Path) -> list[str]:
    """Return one line for each broken link, for each thing that a page loads from elsewhere, and for Markdown that is text."""
    pages = {path: SitePage(path.read_text("utf-8")) for path in sorted(site.rglob("*.html"))}
    found = [
        f"{path.relative_to(site)}: {problem}"
        for path in pages
        for problem in _page_problems(path, pages, site.resolve())
    ]
    for path in sorted(site.rglob("*.css")):
        found += [f"{path.relative_to(site)}: loads {match}" for match in _CSS.findall(path.read_text("utf-8"))]
    return found


def _page_problems(path: Path, pages: dict[Path, SitePage], site: Path) -> Iterator[str]:
    page = pages[path]
    yield from (f"a list, a table or code that is shown as text: {text}" for text in page.markdown)
    for address in dict.fromkeys([*page.loaded, *page.links]):
        parts = urlsplit(address)
        if parts.scheme or parts.netloc:
            if address in page.loaded and parts.scheme != "data":
                yield f"loads {address}"
            elif parts.scheme in ("http", "https") and not _HOST.fullmatch(
                parts.netloc.rpartition(":")[0] or parts.netloc
            ):
                yield f"links to {address}, which is not an address"
            elif parts.scheme not in ("http", "https", "data", "mailto"):
                yield f"links to {address}, which is not for a browser"
            continue
        target = path
        if parts.path:
            start = site if parts.path.startswith("/") else path.parent
            target = (start / unquote(parts.path).lstrip("/")).resolve()
            if target.is_dir():
                target /= "index.html"
        if not target.is_relative_to(site) or not target.is_file():
            yield f"links to {address}, which is not there"
        elif parts.fragment and not _has_anchor(target, unquote(parts.fragment), pages):
            yield f"links to {address}, which has no such anchor"


def _has_anchor(target: Path, anchor: str, pages: dict[Path, SitePage]) -> bool:
    page = pages.get(target)
    # Of a picture: for the theme, which shows it in one of light and dark.
    return anchor in page.anchors if page else anchor in ("only-light", "only-dark")
