"""Our llama-server with a tiny model, without a worker: tests compare its responses with those of the worker."""

from __future__ import annotations

import http.client
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

from protocol.config.settings import Settings
from protocol.models.recipes import ModelSpec
from tests.support.models.tiny_models import tiny_models
from tests.support.ports import free_port
from tests.support.waiting import wait_for
from workers.backends.llamacpp.backend import LlamaCppBackend


class DirectEngine:
    """Talks to one engine."""

    def __init__(self, port: int, key: str = "") -> None:
        self.port = port
        self.headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}

    def post(self, path: str, body: bytes) -> tuple[int, bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)
        try:
            connection.request("POST", path, body, self.headers)
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()

    def healthy(self) -> bool:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=5)
        try:
            connection.request("GET", "/health")
            return connection.getresponse().status == 200
        except OSError:
            return False
        finally:
            connection.close()


def spec_of(model: str, kind: str = "llm", **options: int | str) -> ModelSpec:
    path = tiny_models() / "models" / f"{model}.gguf"
    return ModelSpec(model, model, "llamacpp", "cpu", kind, str(path), options={"threads": 1, **options})


@contextmanager
def running_engine(
    model: str, cache_dir: str, kind: str = "llm", **options: int | str
) -> Iterator[tuple[DirectEngine, LlamaCppBackend]]:
    backend = LlamaCppBackend(spec_of(model, kind, **options), Settings(cache_dir=cache_dir))
    backend.prepare()
    port = free_port()
    with subprocess.Popen(
        backend.command(port),
        env=backend.environment(dict(os.environ)),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as process:
        try:
            direct = DirectEngine(port, backend.key)
            wait_for(direct.healthy, f"the engine of {model} is healthy", 20)
            yield direct, backend
        finally:
            process.kill()
