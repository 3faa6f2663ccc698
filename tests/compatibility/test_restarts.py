"""What a server still knows after a restart: parameters, models, a partial download, an installed backend.

Starting servers takes most of the time here, so all subjects share three successive servers with one state and cache.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.compatibility.backend_installation import NAME, RELEASE, VULKAN, folders, install, state
from tests.compatibility.hub_server import PHI, QWEN, UNREGISTERED, blobs, heal, ids, point_to, pull
from tests.conftest import StartServer
from tests.support.fakes.hub import Hub
from tests.support.fakes.release_server import ReleaseServer
from tests.support.server import LemonbusServer

LOOP, QUICK_START = "extra.tiny-loop", "llama3.2-1b"
DEFAULTS = {"temperature": 0.7, "top_p": 0.95, "top_k": 50, "min_length": 0, "max_length": 2048, "do_sample": True}
"""The documented parameters."""
CHECKPOINTS = COMPLETED, PULLED = ("somebody/Completed-GGUF:Q4_0", "somebody/Pulled-GGUF:Q4_0")
"""Checkpoints that are in no catalogue."""


@dataclass
class Subject:
    """Something that outlives a server."""

    hub: Hub
    folder: Path
    """The directories of the servers' state and cache, and of the hub's cache."""

    def before(self) -> None:
        """Prepare what the first server finds."""

    def first(self, server: LemonbusServer) -> None:
        """Tell the server."""

    def second(self, server: LemonbusServer) -> None:
        """Check that a server still knows it, without asking a hub."""

    def third(self, server: LemonbusServer) -> None:
        """Check the changes of the second server, and those of a newer pin."""


class Parameters(Subject):
    """The parameters of ``POST params``.

    A broken file is moved aside and reported, and affects nothing else.
    """

    def before(self) -> None:
        (self.folder / "state").mkdir()
        (self.folder / "state" / "params.json").write_text("{broken")

    def first(self, server: LemonbusServer) -> None:
        assert server.client.get("/v1/params").json()["params"] == DEFAULTS
        (aside,) = (self.folder / "state").glob("params.json.broken-*")
        assert any(aside.name in line.get("reason", "") for line in server.lines)
        server.client.post("/v1/params", {"max_length": 6, "temperature": 0.1})
        written = json.loads((self.folder / "state" / "params.json").read_text())
        assert written == {"temperature": 0.1, "max_length": 6}

    def second(self, server: LemonbusServer) -> None:
        assert server.client.get("/v1/params").json()["params"] == {**DEFAULTS, "max_length": 6, "temperature": 0.1}
        answer = server.client.chat(LOOP)
        assert (answer.status, answer.json()["usage"]["completion_tokens"]) == (200, 6), answer


class RegisteredModels(Subject):
    """Models that were registered by a pull."""

    def first(self, server: LemonbusServer) -> None:
        assert pull(server, **PHI)[0] == 200

    def second(self, server: LemonbusServer) -> None:
        assert PHI["model_name"] in ids(server)


class UnregisteredCheckpoints(Subject):
    """Checkpoints that are in no catalogue: one that a request of the preview loaded, and one that was pulled."""

    def before(self) -> None:
        for name in CHECKPOINTS:
            self.hub.repositories[name.partition(":")[0]] = self.hub.repositories[UNREGISTERED.partition(":")[0]]

    def first(self, server: LemonbusServer) -> None:
        unknown = server.client.post("/v1/completions", {"model": COMPLETED, "prompt": "x"})
        assert (unknown.status, unknown.error["code"]) == (404, "model_not_found"), "only the preview loads it"
        body = {"model": COMPLETED, "prompt": "the meaning of life is", "max_tokens": 3, "stream": True}
        answer = server.client.post("/api/v0/completions", body)
        assert (answer.status, answer.done) == (200, True), answer
        assert server.client.post("/api/pull", {"model": PULLED, "stream": False}).status == 200

    def second(self, server: LemonbusServer) -> None:
        assert set(CHECKPOINTS) <= set(ids(server))
        again = server.client.post("/v1/completions", {"model": COMPLETED, "prompt": "x", "max_tokens": 2})
        assert again.status == 200, again
        for name in CHECKPOINTS:
            deleted = server.client.post("/v1/delete", {"model_name": name})
            assert deleted.status == 200, deleted

    def third(self, server: LemonbusServer) -> None:
        assert not set(CHECKPOINTS) & set(ids(server))
        for name in CHECKPOINTS:
            assert server.client.post("/v1/completions", {"model": name, "prompt": "x"}).status == 404


class KeptDefaultModel(Subject):
    """The default model of Mullama's quick start."""

    def first(self, server: LemonbusServer) -> None:
        assert server.client.post(f"/api/defaults/{QUICK_START}/use", {}).status == 200

    def second(self, server: LemonbusServer) -> None:
        assert server.client.get("/api/system/status").json()["default_model"] == "llama3.2:1b"
        answer = server.client.post("/api/generate", {"prompt": "Hi", "max_tokens": 1})
        assert answer.status == 200, answer
        assert server.model_state(QUICK_START) == "ready"


class InstalledBackend(Subject):
    """An installed backend, and its update by a newer pin."""

    def first(self, server: LemonbusServer) -> None:
        assert install(server).status == 200

    def second(self, server: LemonbusServer) -> None:
        assert (state(server)["state"], state(server)["version"]) == ("installed", RELEASE)

    def third(self, server: LemonbusServer) -> None:
        found = state(server)
        assert (found["state"], found["version"]) == ("update_required", RELEASE)
        assert found["message"] == "Backend update is required before use."
        assert found["action"] == "lemonbus backends install llamacpp:vulkan"
        assert install(server).json()["version"] == "b8000"
        assert (state(server)["state"], state(server)["version"]) == ("installed", "b8000")
        assert [name.split("-")[0] for name in folders(server) if name != ".lock"] == ["b8000"]


class HalfADownload(Subject):
    """A download that broke off when the server ended can be deleted."""

    def first(self, server: LemonbusServer) -> None:
        before = blobs(self.folder)
        self.hub.hold_after = 100_000
        server.client.start("POST", "/v1/pull", {"model_name": QWEN})
        assert self.hub.holding.wait(20)
        assert blobs(self.folder) == before + 1

    def second(self, server: LemonbusServer) -> None:
        before = blobs(self.folder)
        answer = server.client.post("/v1/delete", {"model_name": QWEN})
        assert answer.status == 200, answer
        assert blobs(self.folder) == before - 1


SUBJECTS = (Parameters, RegisteredModels, UnregisteredCheckpoints, KeptDefaultModel, InstalledBackend, HalfADownload)
"""The last server prevents the hub from sending more."""


def test_state_survives_restarts_of_the_server(
    session_hub: Hub,
    session_releases: ReleaseServer,
    start_server: StartServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    subtests: pytest.Subtests,
) -> None:
    point_to(monkeypatch, session_hub, tmp_path)
    heal(session_hub)
    session_hub.released.clear()
    session_hub.holding.clear()
    subjects = [subject(session_hub, tmp_path) for subject in SUBJECTS]
    for subject in subjects:
        subject.before()
    backend = ":".join(VULKAN.values())
    old = session_releases.pin(backend, RELEASE, NAME)
    new = session_releases.pin(backend, "b8000", "new.tar.gz")
    servers: list[tuple[Callable[[Subject, LemonbusServer], None], dict[str, Any]]] = [
        (lambda subject, server: subject.first(server), {"offline": False, "backend_releases": [old]}),
        (lambda subject, server: subject.second(server), {"offline": True, "backend_releases": [old]}),
        (lambda subject, server: subject.third(server), {"offline": False, "backend_releases": [new]}),
    ]
    folders = {"state_dir": str(tmp_path / "state"), "cache_dir": str(tmp_path / "cache")}
    for number, (check, settings) in enumerate(servers, 1):
        server = start_server("tiny-loop", **folders, **settings)
        for subject in subjects:
            with subtests.test(type(subject).__name__, server=number):
                check(subject, server)
        server.stop()
        heal(session_hub)
        session_hub.released.set()
