"""Image requests, and the engine process that answers them."""

from __future__ import annotations

from typing import Any

from protocol.wire import form_data
from protocol.wire.form_data import FormPart
from tests.support import processes
from tests.support.clients.http_exchange import HttpExchange
from tests.support.images import TURBO, safetensors
from tests.support.processes import ProcessInfo
from tests.support.server import LemonbusServer
from tests.support.waiting import wait_for

BROKEN = {
    "user.Cut": ("cut.safetensors", safetensors(900)[:-50], "truncated"),
    "user.Page": ("page.safetensors", b"<html>not found</html>", "not a safetensors file"),
    "user.Picky": ("broken.safetensors", safetensors(), "did not become ready|exited with code 1"),
}
MODEL, ALIAS = "SD-Turbo", "sd-turbo"
GENERATIONS = "/v1/images/generations"
DOCUMENTED = {"model_name": ALIAS, "steps": 4, "cfg_scale": 1.0, "width": 512, "height": 512}


def engine(server: LemonbusServer) -> ProcessInfo | None:
    return next((each for each in server.process_tree() if each.mentions(TURBO[1])), None)


def kill_engine(server: LemonbusServer) -> ProcessInfo:
    found = engine(server)
    assert found is not None
    processes.kill(found.pid)
    return found


def draw(server: LemonbusServer, **body: Any) -> HttpExchange:
    return server.client.post(GENERATIONS, {"model": MODEL, "prompt": "a cat", "size": "64x64", **body})


def start(server: LemonbusServer, prompt: str, **body: Any) -> HttpExchange:
    """Request an image whose prompt says how long it takes, and wait until the engine is drawing it."""
    before = drawing(server)
    body = {"model": MODEL, "prompt": prompt, "size": "64x64", "steps": 100, **body}
    request = server.client.start("POST", GENERATIONS, body)
    wait_for(lambda: drawing(server) > before, "it is being drawn", 10)
    return request


def send_form(server: LemonbusServer, parts: list[FormPart]) -> HttpExchange:
    kind = {"Content-Type": f"{form_data.MEDIA_TYPE}; boundary=edge"}
    return server.client.start("POST", "/v1/images/edits", form_data.encode(parts, "edge"), kind).finish()


def drawing(server: LemonbusServer) -> int:
    """Return how often an engine has reported that it draws."""
    return sum("generating image" in line.get("event", line.get("message", "")) for line in server.lines)
