"""``/`` is a page for browsers, and for other clients the line that clients of Ollama look for."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from gateway.page.files import ASSETS, MEDIA_TYPES, POLICY
from tests.gateway.app_client import AppClient

BROWSER = {"Accept": "text/html,application/xhtml+xml,*/*;q=0.8"}
FILES = sorted(path for path in ASSETS.rglob("*") if path.is_file())
IMPORT = re.compile(r"""(?:import|from)\s*\(?\s*"([^"]+)"\)?""")
COMMENT = re.compile(r"(?m)(?:^|\s)//.*$|/\*.*?\*/")


@pytest.fixture
def ask(tmp_path: Path) -> AppClient:
    return AppClient(tmp_path)


@pytest.mark.parametrize("accept", ["*/*", "application/json", None])
def test_a_client_of_ollama_gets_its_line(ask: AppClient, accept: str | None) -> None:
    result = ask("GET", "/", headers={"Accept": accept} if accept else {})
    assert (result.status_code, result.text) == (200, "Ollama is running")
    assert result.headers["Content-Type"] == "text/plain; charset=utf-8"
    assert result.headers["Vary"] == "Accept"
    assert ask("HEAD", "/").status_code == 200


def test_a_browser_gets_the_page(ask: AppClient) -> None:
    page = ask("GET", "/", headers=BROWSER)
    assert page.headers["Content-Type"] == "text/html; charset=utf-8"
    assert page.headers["Vary"] == "Accept"
    assert 'src="page/app.js"' in page.text
    again = ask("GET", "/", headers={**BROWSER, "If-None-Match": page.headers["ETag"]})
    assert (again.status_code, again.content) == (304, b"")


@pytest.mark.parametrize("path", ["/", "/docs", "/page/app.js", "/page/theme.css"])
def test_each_file_keeps_a_browser_to_this_server(ask: AppClient, path: str) -> None:
    result = ask("GET", path, headers=BROWSER)
    assert result.status_code == 200
    assert result.headers["Content-Security-Policy"] == POLICY
    assert "unsafe" not in POLICY
    assert "http" not in POLICY
    assert result.headers["X-Content-Type-Options"] == "nosniff"
    assert result.headers["Cache-Control"] == "no-cache"
    assert result.headers["ETag"]


def test_no_key_is_needed_for_files_alone(tmp_path: Path) -> None:
    ask = AppClient(tmp_path, api_key="k" * 32)
    assert ask("GET", "/", headers=BROWSER).status_code == 200
    assert ask("GET", "/page/app.js").status_code == 200
    assert ask("GET", "/").status_code == 401
    assert ask("POST", "/", headers=BROWSER).status_code in (401, 405)
    assert ask("GET", "/v1/models", headers=BROWSER).status_code == 401


@pytest.mark.parametrize("path", ["files.py", "../files.py", "..%2ffiles.py", "/etc/passwd", "overview", "", "app.js/"])
def test_nothing_else_is_sent(ask: AppClient, path: str) -> None:
    result = ask("GET", f"/page/{path}")
    assert (result.status_code == 404) is (path != "app.js/"), path
    if result.status_code == 404:
        assert result.json["error"]["code"] == "not_found"


@pytest.mark.parametrize("file", FILES, ids=[str(path.relative_to(ASSETS)) for path in FILES])
def test_a_file_names_no_other_server_and_nothing_inline(file: Path) -> None:
    assert file.suffix in MEDIA_TYPES
    text = file.read_text()
    assert text.count("\n") <= 300
    code = COMMENT.sub("", text).replace("http://www.w3.org/2000/svg", "")
    assert not re.findall(r"https?://\w", code)
    assert not re.findall(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function", code)
    if file.suffix == ".html":
        assert not re.findall(r"<style|\bstyle=|\son\w+=", text)
        assert re.findall(r"<script[^>]*>(.)", text) in (["<"], [])
        for address in re.findall(r'(?:src|href)="(page/[^"]+)"', text):
            assert (ASSETS / address.removeprefix("page/")).is_file(), address
    for imported in IMPORT.findall(code) if file.suffix == ".js" else ():
        assert (file.parent / imported).is_file(), imported


def test_all_files_are_sent(ask: AppClient) -> None:
    for path in FILES:
        result = ask("GET", f"/page/{path.relative_to(ASSETS)}")
        assert (result.status_code, result.content) == (200, path.read_bytes())
        assert result.headers["Content-Type"] == MEDIA_TYPES[path.suffix]
