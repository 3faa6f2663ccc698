"""The curl lines that the page shows, pasted into a shell: they send exactly what the page sends."""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.gateway.page.node import call
from tests.support.images import png
from tests.support.models.tiny_models import CHAT_TEXT
from tests.support.server import LemonbusServer

pytestmark = pytest.mark.skipif(not shutil.which("curl"), reason="curl is not installed")
KEY = "k'$HOME\"y"
PATIENCE_S = 30.0
HARD = "it's \"so\" $HOME `id` \\n \n\t!! ü 漢 \u202e\u009b '; exit 7; '"


class Received(NamedTuple):
    """A request as it came."""

    method: str
    path: str
    key: str | None
    type: str | None
    body: bytes


class Recorder(ThreadingHTTPServer):
    """Keeps requests, and answers each with the same JSON."""

    daemon_threads = True

    def __init__(self) -> None:
        self.received: list[Received] = []
        self.answer = b"{}"
        super().__init__(("127.0.0.1", 0), _Handler)
        self.base = f"http://127.0.0.1:{self.server_port}/"


class _Handler(BaseHTTPRequestHandler):
    server: Recorder

    def _answer(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", "0")))
        headers = self.headers
        self.server.received.append(
            Received(self.command, self.path, headers["Authorization"], headers["Content-Type"], body)
        )
        self.send_response(200)
        self.send_header("Content-Length", str(len(self.server.answer)))
        self.end_headers()
        self.wfile.write(self.server.answer)

    do_GET = do_POST = do_DELETE = _answer  # noqa: N815 - the names that the base class looks for

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


@pytest.fixture
def recorder() -> Iterator[Recorder]:
    with Recorder() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def shell(line: str, folder: Path) -> str:
    """Run a line as a user would, in a folder with the files."""
    done = subprocess.run(
        ["sh"],
        input=line,  # as if it were pasted: an argument has a limit
        cwd=folder,
        env={"PATH": os.environ["PATH"], "LEMONBUS_API_KEY": KEY, "NO_PROXY": "127.0.0.1", "HOME": "/nowhere"},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == 0, f"{line}\n{done.stderr}"
    return done.stdout


def test_any_text_arrives(recorder: Recorder, tmp_path: Path) -> None:
    body = {HARD: [HARD, 1, None, True, {"x": 0.5}]}
    shell(call("curl.js", "curlLine", "POST", "/v1/x?a=b&c", body, {"base": recorder.base, "key": True}), tmp_path)
    (request,) = recorder.received
    assert request[:4] == ("POST", "/v1/x?a=b&c", f"Bearer {KEY}", "application/json")
    assert json.loads(request.body) == body


def test_without_a_body(recorder: Recorder, tmp_path: Path) -> None:
    for method in ("GET", "POST", "DELETE"):
        shell(call("curl.js", "curlLine", method, "/v1/x/a[1-2]{b}", None, {"base": recorder.base}), tmp_path)
    assert [(each.method, each.path) for each in recorder.received] == [
        (method, "/v1/x/a%5B1-2%5D%7Bb%7D") for method in ("GET", "POST", "DELETE")
    ]
    assert {each.key for each in recorder.received} == {None}


def test_a_large_text_arrives(recorder: Recorder, tmp_path: Path) -> None:
    body = {"text": "漢" * 200_000}
    shell(call("curl.js", "curlLine", "POST", "/v1/x", body, {"base": recorder.base}), tmp_path)
    assert json.loads(recorder.received[0].body) == body


@pytest.mark.parametrize("name", ["cat.png", '-it\'s my "cat"; $HOME.png'])
def test_files_in_a_body(recorder: Recorder, tmp_path: Path, name: str) -> None:
    picture = png(64, 64) + bytes(300_000)
    (tmp_path / name).write_bytes(picture)
    url = f"data:image/png;base64,{base64.b64encode(picture).decode()}"
    body = {"a": HARD, "content": [{"url": url}, {"url": "data:image/png;base64,AA=="}], "z": 1}
    options = {"base": recorder.base, "files": [{"name": name, "url": url}]}
    line = call("curl.js", "curlLine", "POST", "/v1/x", body, options)
    assert len(line) < 1_000, "the file is named, not written out"
    shell(line, tmp_path)
    assert json.loads(recorder.received[0].body) == body


@pytest.mark.parametrize("name", ["speech.wav", "-a;b,c \"d\" \\ 'e'.wav"])
def test_a_form(recorder: Recorder, tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(b"RIFF-and-so-on")
    form = [["file", {"file": name}], ["prompt", f"@{name};type=x/y"], ["model", "<m>"]]
    options = {"base": recorder.base, "form": form}
    shell(call("curl.js", "curlLine", "POST", "/v1/audio/transcriptions", None, options), tmp_path)
    (request,) = recorder.received
    assert (request.method, (request.type or "").partition(";")[0]) == ("POST", "multipart/form-data")
    for expected in (b'name="file"; filename=', b"RIFF-and-so-on", f"@{name};type=x/y".encode(), b"<m>"):
        assert expected in request.body


def test_a_picture_that_was_drawn(recorder: Recorder, tmp_path: Path) -> None:
    picture = png(64, 64)
    recorder.answer = json.dumps({"created": 1, "data": [{"b64_json": base64.b64encode(picture).decode()}]}).encode()
    options = {"base": recorder.base, "picture": "my picture.png"}
    shell(call("curl.js", "curlLine", "POST", "/v1/images/generations", {"prompt": "x"}, options), tmp_path)
    assert (tmp_path / "my picture.png").read_bytes() == picture


def test_a_chat_with_a_real_server(shared_server: LemonbusServer, tmp_path: Path) -> None:
    body = {"model": "extra.tiny-chat", "messages": [{"role": "user", "content": HARD}]}
    options = {"base": f"http://127.0.0.1:{shared_server.port}/", "key": True}
    output = shell(call("curl.js", "curlLine", "POST", "/v1/chat/completions", body, options), tmp_path)
    assert json.loads(output)["choices"][0]["message"]["content"].strip() == CHAT_TEXT.strip()
    streamed = {**body, "stream": True}
    line = call("curl.js", "curlLine", "POST", "/v1/chat/completions", streamed, {**options, "stream": True})
    assert shell(line, tmp_path).rstrip().endswith("data: [DONE]")
