"""A server and a hub on loopback, with the repositories of the documents' examples and of the tests for pull, delete and models."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest

from protocol.models import checkpoints, repository_files
from tests.support.fakes.hub import Hub, gguf, revision
from tests.support.models.genai_models import genai_repository_files
from tests.support.models.tiny_models import tiny_models
from tests.support.server import LemonbusServer
from tests.support.waiting import wait_for

QWEN: Final = "Qwen3-0.6B-GGUF"
"""A model of the catalogue that the documents load; here the hub has a tiny one under its name."""
CPU: Final = "Qwen2.5-0.5B-Instruct-CPU"
HYBRID: Final = "Llama-3.2-1B-Instruct-Hybrid"
"""Models of ONNX Runtime GenAI in the catalogue; the hub has tiny models under their names."""
ONNX: Final = "somebody/Preview-int4-onnx-hybrid"
"""One that is in no catalogue."""
WHISPER_CHECKPOINT: Final = "ggerganov/whisper.cpp:ggml-large-v3-turbo-q8_0.bin"
"""The model that the document's whisper model means."""
UNREGISTERED: Final = "somebody/Preview-GGUF:Q4_0"
"""A checkpoint that is in no catalogue: what the preview calls ``<HUGGINGFACE_CHECKPOINT>``."""
VARIANTS: Final = "unsloth/Qwen3-8B-GGUF"
"""A repository with several quantizations, one of them in shards."""
SHARDS: Final = [f"Q8_0/Qwen3-8B-Q8_0-0000{number}-of-00002.gguf" for number in (1, 2)]
TOKEN: Final = "hf_secret"
"""The server's ``HF_TOKEN``. The hub does not ask for it unless a test says so."""
PHI: Final = {
    "model_name": "user.Phi-4-Mini-GGUF",
    "checkpoint": "unsloth/Phi-4-mini-instruct-GGUF:Q4_K_M",
    "recipe": "llamacpp",
}
"""The documents' own example of a model that is registered."""
PROJECTOR: Final = "mmproj-model-f16.gguf"


@contextmanager
def hub_with_repositories(folder: Path) -> Iterator[Hub]:
    """Make servers that are started inside use this hub and a separate hub cache."""
    with running_hub(folder) as hub, pytest.MonkeyPatch.context() as patch:
        point_to(patch, hub, folder)
        yield hub


def point_to(patch: pytest.MonkeyPatch, hub: Hub, folder: Path) -> None:
    """Make servers that are started from now on use this hub, and a hub cache in the folder."""
    patch.setenv("HF_ENDPOINT", hub.url)
    patch.setenv("HF_HOME", str(folder / "hf"))
    patch.setenv("HF_TOKEN", TOKEN)


@contextmanager
def running_hub(folder: Path) -> Iterator[Hub]:
    """A hub with the repositories that these tests know; the folder is used to write models."""
    with Hub(_repositories(folder)) as hub:
        yield hub


def _repositories(folder: Path) -> dict[str, dict[str, bytes]]:
    tiny = tiny_models() / "models"
    chat = (tiny / "tiny-chat.gguf").read_bytes()
    return {
        "unsloth/Phi-4-mini-instruct-GGUF": {
            "Phi-4-mini-instruct-Q4_K_M.gguf": chat,
            "Phi-4-mini-instruct-Q8_0.gguf": gguf(1000, 2),
            PROJECTOR: gguf(500, 3),
            "README.md": b"hello",
        },
        "amd/Qwen2.5-0.5B-Instruct-quantized_int4-float16-cpu-onnx": genai_repository_files("tiny-oga", folder),
        ONNX: genai_repository_files("tiny-oga-loop", folder),
        WHISPER_CHECKPOINT.partition(":")[0]: {
            WHISPER_CHECKPOINT.partition(":")[2]: (tiny / "tiny-whisper.bin").read_bytes()
        },
        UNREGISTERED.partition(":")[0]: {"Preview-Q4_0.gguf": (tiny / "tiny-loop.gguf").read_bytes()},
        VARIANTS: {
            "Qwen3-8B-Q4_K_M.gguf": gguf(4920),
            SHARDS[0]: gguf(5000),
            SHARDS[1]: gguf(3500),
            "mmproj-model-f16.gguf": gguf(30),
            "README.md": b"# Qwen3",
        },
        "acme/nothing": {"README.md": b"# nothing"},
        "nomic-ai/nomic-embed-text-v1-GGUF": {
            "nomic-embed-text-v1.Q4_K_S.gguf": (tiny / "tiny-embed.gguf").read_bytes()
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
        "shop/Broken-GGUF": {"cut-Q8_0.gguf": chat[: len(chat) // 2]},
        "shop/Onnx": {"genai_config.json": b"{}", "model.onnx": b"onnx"},
    }


def heal(hub: Hub) -> None:
    """Remove the hub's faults."""
    hub.hold_after = hub.rate = hub.status = hub.busy = 0
    hub.token, hub.garbage = "", b""


class HubServer(NamedTuple):
    """A server, the hub that it asks, and the folder of its cache."""

    server: LemonbusServer
    hub: Hub
    folder: Path

    def reset(self) -> None:
        """Remove everything that a test left, so that the next test finds the server as if it had just started."""
        heal(self.hub)
        self.hub.released.set()
        wait_for(lambda: not self.server.state()["downloads"], "no download runs")
        if self.server.health()["all_models_loaded"]:
            assert self.server.client.post("/v1/unload", {}).status == 200
        for name in ("user_models.json", "recipe_options.json"):
            (self.server.home / "state" / name).unlink(missing_ok=True)
        shutil.rmtree(self.folder / "hf", ignore_errors=True)
        # It reads the files at each request. While a file is broken, its former content still counts, which the next test may cause.
        assert not [name for name in ids(self.server) if name.startswith("user.")]
        self.hub.released.clear()
        self.hub.holding.clear()
        self.hub.transfers.clear()

    def install(self, *models: dict[str, Any]) -> None:
        """Register users' models as pulls with these bodies would, but without a process for each pull."""
        items = {}
        for body in models:
            checkpoint = checkpoints.parse(body["checkpoint"])
            assert isinstance(checkpoint, checkpoints.HubCheckpoint)
            files = self.hub.repositories[checkpoint.repo]
            names = repository_files.choose_files(list(files), checkpoint.variant)
            root = self.folder / "hf" / "hub" / checkpoint.folder
            for name in [*names, *([body["mmproj"]] if "mmproj" in body else [])]:
                _put_in_cache(root, revision(checkpoint.repo), name, files[name])
            items[body["model_name"].removeprefix("user.")] = {
                key: value for key, value in body.items() if key != "model_name"
            }
        state = self.server.home / "state" / "user_models.json"
        state.parent.mkdir(exist_ok=True)
        state.write_text(json.dumps(items))


def _put_in_cache(root: Path, commit: str, name: str, data: bytes) -> None:
    """Put a file into the cache of a repository as the hub's library does."""
    blob, link, main = (
        root / "blobs" / hashlib.sha256(data).hexdigest(),
        root / "snapshots" / commit / name,
        root / "refs/main",
    )
    for path in (blob, link, main):
        path.parent.mkdir(parents=True, exist_ok=True)
    blob.write_bytes(data)
    main.write_text(commit)
    if not link.is_symlink():
        link.symlink_to(Path("../../blobs") / blob.name)


def cached(folder: Path) -> set[str]:
    """Return the files in the hub's cache, by ``REPO/FILE``."""
    hub = folder / "hf" / "hub"
    return {
        f"{path.relative_to(hub).parts[0].removeprefix('models--')}/{path.name}"
        for path in hub.glob("models--*/snapshots/*/**/*")
        if path.is_file()
    }


def blobs(folder: Path) -> int:
    """Return how many blobs are in the hub's cache, complete or not."""
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
