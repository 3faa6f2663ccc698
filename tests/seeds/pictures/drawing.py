"""An image model in a house: pictures asked for, begun and sent, and the process that draws them."""

from __future__ import annotations

from typing import Any

from protocol import forms
from protocol.forms import Part
from tests.house import processes
from tests.house.exchange import Exchange
from tests.house.pictures import TURBO, safetensors
from tests.house.processes import Process
from tests.house.server import Server
from tests.house.waiting import wait_for

BROKEN = {
    "user.Cut": ("cut.safetensors", safetensors(900)[:-50], "truncated"),
    "user.Page": ("page.safetensors", b"<html>not found</html>", "not a safetensors file"),
    "user.Picky": ("broken.safetensors", safetensors(), "did not become ready|exited with code 1"),
}
MODEL, ALIAS = "SD-Turbo", "sd-turbo"
GENERATIONS = "/v1/images/generations"
DOCUMENTED = {"model_name": ALIAS, "steps": 4, "cfg_scale": 1.0, "width": 512, "height": 512}


def engine(server: Server) -> Process | None:
    return next((each for each in server.process_tree() if each.mentions(TURBO[1])), None)


def kill_engine(server: Server) -> Process:
    found = engine(server)
    assert found is not None
    processes.kill(found.pid)
    return found


def draw(server: Server, **body: Any) -> Exchange:
    return server.client.post(GENERATIONS, {"model": MODEL, "prompt": "a cat", "size": "64x64", **body})


def start(server: Server, **body: Any) -> Exchange:
    """Begin a picture that takes a second, and wait until it is being drawn."""
    before = drawing(server)
    body = {"model": MODEL, "prompt": "slowly", "size": "64x64", "steps": 100, **body}
    request = server.client.start("POST", GENERATIONS, body)
    wait_for(lambda: drawing(server) > before, "it is being drawn", 10)
    return request


def send_form(server: Server, parts: list[Part]) -> Exchange:
    kind = {"Content-Type": f"{forms.KIND}; boundary=edge"}
    return server.client.start("POST", "/v1/images/edits", forms.written(parts, "edge"), kind).finish()


def drawing(server: Server) -> int:
    """How often an engine has said that it draws."""
    return sum("generating image" in line.get("event", line.get("message", "")) for line in server.lines)
