"""A house with flm: how it is opened, its models loaded and asked, and the process of their engine."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from protocol import forms
from protocol.forms import Part
from tests.conftest import OpenHouse
from tests.engines import flm
from tests.house import processes, tools
from tests.house.exchange import Exchange
from tests.house.machines import laptop
from tests.house.server import Server

MODEL, TAG = "Llama-3.2-1B-FLM", "llama3.2:1b"
EMBED, EARS = "embed-gemma-300m-FLM", "whisper-v3-turbo-FLM"


@contextmanager
def npu_house(open_shared: OpenHouse, folder: Path) -> Iterator[tuple[Server, Path]]:
    """A server on the documents' laptop, and the folder of its flm; nothing odd may have been done to that."""
    home = flm.installed(folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", tools.path(folder / "bin"))
        machine = str(laptop(folder / "machine").root)
        settings = {"machine_dir": machine, "ctx_size": 1024, "backoff_first": 0.05, "gateway_workers": 1}
        server = open_shared("tiny-chat", offline=False, **settings)
        yield server, home
    assert not (home / "oddities").exists(), (home / "oddities").read_text()


def load(server: Server, name: str = MODEL, **options: Any) -> Exchange:
    return server.client.post("/v1/load", {"model_name": name, **options})


def engine_of(server: Server, name: str = MODEL) -> processes.Process:
    """The process of a model's engine."""
    pid = next(model["engine_pid"] for model in server.state()["models"] if model["model_name"] == name)
    found = processes.look(pid)
    assert found is not None
    return found


def granted(server: Server) -> int:
    return int(server.state()["granted"])


def transcribe(server: Server, **fields: str) -> Exchange:
    said = {"model": EARS, **fields}.items()
    body = forms.written([*(Part(name, text.encode()) for name, text in said), Part("file", b"what I said", "a.wav")])
    kind = f"{forms.KIND}; boundary={forms.boundary_of(body)}"
    return server.client.post("/v1/audio/transcriptions", body, Content_Type=kind)
