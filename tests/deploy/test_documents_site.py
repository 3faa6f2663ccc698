"""The site of docs/: where links of the repository lead in it, and what the check of a built site finds."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from deploy.documents import built_pages, sources

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize(
    ("path", "page"),
    [
        ("docs/engines/oga.md", "engines/oga.md"),
        ("README.md", "index.md"),
        ("protocol/README.md", "protocol.md"),
        ("deploy/systemd/gpu.conf", "files/deploy/systemd/gpu.conf.md"),
    ],
)
def test_the_page_of_a_file(path: str, page: str) -> None:
    assert sources.page_of(path) == page
    assert sources.source_of(page) == (path if page != "index.md" else "docs/index.md")


def test_links_lead_to_pages_of_the_site() -> None:
    text = (
        "[a](../README.md) [b](../ARCHITECTURE.md#the-parts), [c](memory.md#what-there-is) [d](../deploy/systemd/gpu.conf)"
        "\n\n```\n[e](../README.md)\n```\n[f](https://example.org/x.md) [g](../nowhere.md) [h](#here)"
    )
    assert sources.rewritten(text, "docs/keys.md", ROOT) == (
        "[a](index.md) [b](architecture.md#the-parts), [c](memory.md#what-there-is) [d](files/deploy/systemd/gpu.conf.md)"
        "\n\n```\n[e](../README.md)\n```\n[f](https://example.org/x.md) [g](../nowhere.md) [h](#here)"
    )
    assert sources.rewritten("[x](docs/engines/oga.md)", "CONTRIBUTING.md", ROOT) == "[x](engines/oga.md)"
    assert sources.rewritten("[x](../docs/keys.md)", "protocol/README.md", ROOT) == "[x](keys.md)"
    assert sources.rewritten("[x](../keys.md)", "docs/engines/oga.md", ROOT) == "[x](../keys.md)"


def test_a_link_that_shows_a_path_shows_the_title_of_the_page() -> None:
    text = "in [memory.md](memory.md#what-there-is), [its keys](keys.md), [../README.md](../README.md) and [x.md](nowhere.md)"
    assert sources.rewritten(text, "docs/limits.md", ROOT) == (
        "in [Memory](memory.md#what-there-is), [its keys](keys.md), [lemonbus](index.md) and [x.md](nowhere.md)"
    )


def test_a_file_is_shown_whole_whatever_it_contains(tmp_path: Path) -> None:
    (tmp_path / "x.yaml").write_text("a: |\n  ```\n  b\n  ````\n")
    assert sources.shown("x.yaml", tmp_path) == "# x.yaml\n\n`````yaml\na: |\n  ```\n  b\n  ````\n`````\n"


@pytest.mark.parametrize(
    ("heading", "anchor"),
    [
        ("How fast is a model: `lemonbus bench MODEL`", "how-fast-is-a-model-lemonbus-bench-model"),
        ("The disk: `lemonbus du` and `prune`", "the-disk-lemonbus-du-and-prune"),
        ("What's *in* state_dir?", "whats-in-state_dir"),
    ],
)
def test_anchors_are_those_of_the_repository(heading: str, anchor: str) -> None:
    assert sources.slug(heading) == anchor


PROBLEMS = [
    ('<a href="b.html#there">', ""),
    ('<a href="b.html#gone">', "links to b.html#gone, which has no such anchor"),
    ('<a href="gone.html">', "links to gone.html, which is not there"),
    ('<a href="/b.html">', ""),
    ('<a href="sub/../b.html">', ""),
    ('<a href="../outside.html">', "links to ../outside.html, which is not there"),
    ('<p id="top"><a href="#top">', ""),
    ('<a href="#gone">', "links to #gone, which has no such anchor"),
    ('<a href="https://example.org/x#y">', ""),
    ('<a href="http://127.0.0.1:13305/">', ""),
    ('<a href="https:///x">', "links to https:///x, which is not an address"),
    ('<a href="https://exa mple.org/">', "links to https://exa mple.org/, which is not an address"),
    ('<a href="javascript:x()">', "links to javascript:x(), which is not for a browser"),
    ('<img src="picture.png#only-dark">', ""),
    ('<img src="gone.png">', "links to gone.png, which is not there"),
    ('<img src="https://example.org/x.png">', "loads https://example.org/x.png"),
    ('<picture><source srcset="gone.png 2x">', "links to gone.png, which is not there"),
    ('<script src="//cdn.example.org/x.js">', "loads //cdn.example.org/x.js"),
    ('<link rel="stylesheet" href="https://fonts.example.org/x.css">', "loads https://fonts.example.org/x.css"),
    ('<link rel="canonical" href="https://example.org/">', ""),
    ('<pre class="mermaid">', "loads https://unpkg.com/mermaid"),
    ("<p>Text\n- a\n- b</p>", "a list, a table or code that is shown as text: - a"),
    ("<p>Text\n| a | b |\n| --- | --- |</p>", "a list, a table or code that is shown as text: | a | b |"),
    ("<p>Text -\nmore <code>x\ny</code></p><pre>\n- a</pre>", ""),
]


@pytest.mark.parametrize(("html", "problem"), PROBLEMS)
def test_what_the_check_of_a_built_site_finds(html: str, problem: str, tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "a.html").write_text(html)
    (tmp_path / "b.html").write_text('<h1 id="there">')
    (tmp_path / "picture.png").write_bytes(b"")
    found = built_pages.problems(tmp_path)
    assert len(found) == bool(problem), found
    assert all(re.match(rf"a\.html: {re.escape(problem)}", each) for each in found), found


def test_a_style_sheet_loads_nothing_from_elsewhere(tmp_path: Path) -> None:
    (tmp_path / "x.css").write_text('a{background:url("data:image/png,x")} @import url(https://fonts.example.org/x);')
    assert built_pages.problems(tmp_path) == ["x.css: loads url(https://fonts.example.org/x"]
