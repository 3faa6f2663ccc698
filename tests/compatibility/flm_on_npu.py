"""A server with flm: starting it, loading and using its models, and the process of their engine."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from protocol.wire import form_data
from protocol.wire.form_data import FormPart
from tests.compatibility.hub_server import point_to
from tests.conftest import StartServer
from tests.fake_engines import flm
from tests.support import processes
from tests.support.audio import packed
from tests.support.clients.http_exchange import HttpExchange
from tests.support.fakes import driver_tools
from tests.support.fakes.hub import Hub
from tests.support.fakes.machines import laptop
from tests.support.server import LemonbusServer

MODEL, TAG = "Llama-3.2-1B-FLM", "llama3.2:1b"
EMBED, SPEECH = "embed-gemma-300m-FLM", "whisper-v3-turbo-FLM"


@contextmanager
def npu_server(start: StartServer, hub: Hub, folder: Path) -> Iterator[tuple[LemonbusServer, Path]]:
    """A server on the documents' laptop, and the folder of its flm, which the test must leave unchanged."""
    home = flm.installed(folder)
    with pytest.MonkeyPatch.context() as patch:
        point_to(patch, hub, folder)
        patch.setenv("PATH", driver_tools.path(folder / "bin"))
        machine = str(laptop(folder / "machine").root)
        settings = {"machine_dir": machine, "ctx_size": 1024, "backoff_first": 0.05, "gateway_workers": 1}
        server = start("tiny-chat", offline=False, **settings)
    yield server, home
    assert not (home / "oddities").exists(), (home / "oddities").read_text()


def load(server: LemonbusServer, name: str = MODEL, **options: Any) -> HttpExchange:
    return server.client.post("/v1/load", {"model_name": name, **options})


def engine_of(server: LemonbusServer, name: str = MODEL) -> processes.ProcessInfo:
    """The process of a model's engine."""
    pid = next(model["engine_pid"] for model in server.state()["models"] if model["model_name"] == name)
    found = processes.look(pid)
    assert found is not None
    return found


def granted(server: LemonbusServer) -> int:
    return int(server.state()["granted"])


def transcribe(server: LemonbusServer, **fields: str) -> HttpExchange:
    form = {"model": SPEECH, **fields}.items()
    body = form_data.encode(
        [
            *(FormPart(name, text.encode()) for name, text in form),
            FormPart("file", packed(b"the words ", rate=8_000, width=1), "a.wav"),
        ]
    )
    kind = f"{form_data.MEDIA_TYPE}; boundary={form_data.boundary_from_body(body)}"
    return server.client.post("/v1/audio/transcriptions", body, Content_Type=kind)
