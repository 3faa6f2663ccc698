"""A server and a hub on loopback with the repositories for tests of pull, delete and models."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest

from tests.support.fakes.hub import Hub, gguf
from tests.support.models.tiny_models import tiny_models
from tests.support.server import LemonbusServer
from tests.support.waiting import wait_for

CPU: Final = "Qwen2.5-0.5B-Instruct-CPU"
PHI: Final = {
    "model_name": "user.Phi-4-Mini-GGUF",
    "checkpoint": "unsloth/Phi-4-mini-instruct-GGUF:Q4_K_M",
    "recipe": "llamacpp",
}
"""The documents' own example of a model that is registered."""
PROJECTOR: Final = "mmproj-model-f16.gguf"


@contextmanager
def hub_with_repositories(folder: Path) -> Iterator[Hub]:
    """Let servers that are started meanwhile find this hub, and a hub cache of their own."""
    with running_hub() as hub, pytest.MonkeyPatch.context() as patch:
        point_to(patch, hub, folder)
        yield hub


def point_to(patch: pytest.MonkeyPatch, hub: Hub, folder: Path) -> None:
    """Let servers that are started from now on find this hub, and a hub cache in the folder."""
    patch.setenv("HF_ENDPOINT", hub.url)
    patch.setenv("HF_HOME", str(folder / "hf"))


@contextmanager
def running_hub() -> Iterator[Hub]:
    """A hub with the repositories that these tests know."""
    with Hub(_repositories()) as hub:
        yield hub


def _repositories() -> dict[str, dict[str, bytes]]:
    tiny = tiny_models() / "models"
    chat = (tiny / "tiny-chat.gguf").read_bytes()
    return {
        "unsloth/Phi-4-mini-instruct-GGUF": {
            "Phi-4-mini-instruct-Q4_K_M.gguf": chat,
            "Phi-4-mini-instruct-Q8_0.gguf": gguf(1000, 2),
            PROJECTOR: gguf(500, 3),
            "README.md": b"hello",
        },
        "amd/Qwen2.5-0.5B-Instruct-quantized_int4-float16-cpu-onnx": {
            "model.onnx": b"onnx" * 100,
            "model.onnx.data": b"data" * 1000,
            "tokenizer.json": b"{}",
            "genai_config.json": b"{}",
        },
        "unsloth/Qwen3-0.6B-GGUF": {"Qwen3-0.6B-Q4_0.gguf": chat},
        "bartowski/Llama-3.2-1B-Instruct-GGUF": {"Llama-3.2-1B-Instruct-Q4_K_M.gguf": chat},
        "shop/Ours-GGUF": {
            "Ours-Q4_K_M.gguf": chat,
            "Ours-Q8_0.gguf": gguf(1000, 2),
            PROJECTOR: gguf(500, 3),
            "README.md": b"hello",
        },
        "shop/Loop-GGUF": {"Loop-Q4_0.gguf": (tiny / "tiny-loop.gguf").read_bytes()},
        "shop/Big-GGUF": {"Big-Q4_0.gguf": gguf(600_000, 4)},
        "shop/Other-GGUF": {"Other-Q4_0.gguf": gguf(1000, 5), "Other-Q8_0.gguf": gguf(1000, 6)},
        "shop/Broken-GGUF": {
            "empty-Q4_0.gguf": b"",
            "cut-Q8_0.gguf": chat[: len(chat) // 2],
            "text-Q5_K_M.gguf": b"no",
        },
        "shop/Onnx": {"genai_config.json": b"{}", "model.onnx": b"onnx"},
    }


class HubServer(NamedTuple):
    """A server, the hub that it asks, and the folder of its cache."""

    server: LemonbusServer
    hub: Hub
    folder: Path

    def reset(self) -> None:
        """Put away whatever a test left, so that the next finds a server that has just been started."""
        self.hub.hold_after = self.hub.rate = 0
        self.hub.released.set()
        wait_for(lambda: not self.server.state()["downloads"], "no download runs")
        if self.server.health()["all_models_loaded"]:
            assert self.server.client.post("/v1/unload", {}).status == 200
        for name in ("user_models.json", "recipe_options.json"):
            (self.server.home / "state" / name).unlink(missing_ok=True)
        shutil.rmtree(self.folder / "hf", ignore_errors=True)
        # It reads the files when it is asked: what it knew counts on while one is broken, as the next test may make it.
        assert not [name for name in ids(self.server) if name.startswith("user.")]
        self.hub.released.clear()
        self.hub.holding.clear()
        self.hub.transfers.clear()


def cached(folder: Path) -> set[str]:
    """Return the files that the hub's cache shows, by ``REPO/FILE``."""
    hub = folder / "hf" / "hub"
    return {
        f"{path.relative_to(hub).parts[0].removeprefix('models--')}/{path.name}"
        for path in hub.glob("models--*/snapshots/*/**/*")
        if path.is_file()
    }


def blobs(folder: Path) -> int:
    """Return how many blobs are in the hub's cache, whole or not."""
    return len(list((folder / "hf" / "hub").glob("models--*/blobs/*")))


def registered(server: LemonbusServer) -> dict[str, Any]:
    """Return what is in ``user_models.json``."""
    path = server.home / "state" / "user_models.json"
    found: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
    return found


def pull(server: LemonbusServer, **body: Any) -> tuple[int, dict[str, Any]]:
    """Pull; return the status and the answer."""
    answer = server.client.post("/v1/pull", body)
    return answer.status, answer.json()


def ids(server: LemonbusServer, query: str = "") -> list[str]:
    """Return the ids that the list of models has."""
    return [entry["id"] for entry in server.client.get(f"/v1/models{query}").json()["data"]]
