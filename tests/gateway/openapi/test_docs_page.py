"""``/docs`` needs nothing from elsewhere, and a browser lets it run nothing but its own script."""

from __future__ import annotations

import base64
import hashlib
import re
from pathlib import Path

from tests.gateway.app_client import AppClient


def digest(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def test_its_policy_allows_its_own_script_and_style_alone(tmp_path: Path) -> None:
    result = AppClient(tmp_path)("GET", "/docs")
    assert (result.status_code, result.headers["Content-Type"]) == (200, "text/html; charset=utf-8")
    policy = result.headers["Content-Security-Policy"]
    assert policy.startswith("default-src 'none'; ")
    assert "unsafe" not in policy
    for element in ("script", "style"):
        (inside,) = re.findall(f"<{element}>(.*?)</{element}>", result.text, re.DOTALL)
        assert len(inside) > 200
        assert f"{element}-src '{digest(inside)}'" in policy
    assert result.headers["X-Content-Type-Options"] == "nosniff"


def test_it_names_no_other_address(tmp_path: Path) -> None:
    page = AppClient(tmp_path)("GET", "/docs").text
    assert not re.findall(r"(?:https?:)?//\w", re.sub(r"(?m)^\s*//.*$", "", page))
    assert not re.findall(r"\b(?:src|style|on\w+)=", page)
    assert "innerHTML" not in page


def test_it_is_shown_without_a_key_and_while_the_server_starts(tmp_path: Path) -> None:
    ask = AppClient(tmp_path, api_key="k" * 32)
    page = ask("GET", "/docs")
    assert page.status_code == 200
    assert ask("GET", "/docs", headers={"If-None-Match": page.headers["ETag"]}).status_code == 304
    assert ask("GET", "/docs/").status_code == 200
    assert ask("GET", "/v1/models").status_code == 401
