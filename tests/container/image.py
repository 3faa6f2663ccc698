"""What a container of the image must do: as any user, with a read-only root and no capability."""

from __future__ import annotations

import contextlib
import csv
import io
import json
import re
import shutil
import tempfile
from pathlib import Path

from tests.container.podman import Podman
from tests.support.clients.http_client import RawHttpClient
from tests.support.models.tiny_models import link_models
from tests.support.ports import free_port
from tests.support.waiting import wait_for

NAME = "lemonbus"
USER = "12345"
MODEL = "extra.tiny-loop"
CATALOGUE_MODEL = "SmolLM2-135M-Instruct-GGUF"
TOKENS = 6000
"""Enough for a stream to go on while the server is told to stop."""
MEMORY = 1_000_000_000 // 4096 * 4096
READY_S = 60.0
DOWNLOADED_S = 600.0
STATE, CACHE = "/var/lib/lemonbus", "/var/cache/lemonbus"
LOCKED = ["--read-only", "--read-only-tmpfs=false", "--tmpfs", "/tmp", "--cap-drop", "all"]  # noqa: S108 - the container's
LOCKED += ["--security-opt", "no-new-privileges", "--user", USER, "--network", "host"]
VOLUMES = ["--volume", f"state:{STATE}", "--volume", f"cache:{CACHE}"]
IMAGE = "localhost/lemonbus"


def answers_with_a_model_of_the_catalogue(podman: Podman) -> str:
    """Start it with nothing but a key; return what the model says that it has downloaded."""
    port = free_port()
    settings = {"LEMONBUS_API_KEY": "secret", "LEMONBUS_PORT": str(port), "LEMONBUS_LOAD": CATALOGUE_MODEL}
    volumes = ["--volume", f"first-state:{STATE}", "--volume", f"first-cache:{CACHE}", *podman.index]
    podman.run("run", "--detach", "--name", "first", *_quiet(settings), *LOCKED, *volumes, IMAGE)
    try:
        client = RawHttpClient(port, {"Authorization": "Bearer secret"})
        wait_for(lambda: _ready(client), "the model is downloaded and loaded", DOWNLOADED_S)
        answer = client.chat(CATALOGUE_MODEL, 60.0, max_tokens=16)
        assert answer.status == 200, answer.body
        return answer.text
    finally:
        podman.run("rm", "--force", "--time", "60", "first")


def check(podman: Podman) -> None:
    """Run every check, each on what the former one has left."""
    with tempfile.TemporaryDirectory(prefix="lemonbus-models-", dir="/tmp") as folder:
        link_models(Path(folder) / "links", "tiny-loop")
        models = Path(folder) / "models"
        shutil.copytree(Path(folder) / "links", models)  # what the links mean
        for path in (Path(folder), models, *models.iterdir()):
            path.chmod(0o755)
        refuses_to_serve_without_a_key(podman)
        container = ImageChecks(podman, models)
        try:
            container.is_ready()
            container.has_no_compiler()
            container.is_healthy_unless_it_is_drained()
            container.keeps_within_its_memory()
            container.reaps_orphans()
            container.logs_json()
            container.lets_a_stream_end_when_it_is_stopped()
            container.knows_its_state_after_a_restart()
        except BaseException:
            print(*podman.logs(NAME)[-40:], sep="\n", flush=True)
            raise
        finally:
            podman.code("rm", "--force", "--time", "5", NAME)
    print("container: it answered, was drained, stopped within a stream, and kept its keys and usage", flush=True)


def refuses_to_serve_without_a_key(podman: Podman) -> None:
    """It ends with 2, and says what to do."""
    code, output = podman.refused("run", "--rm", *_quiet({}), *LOCKED, *VOLUMES, IMAGE)
    assert code == 2, output
    assert f"lemonbus keys add NAME --scope admin --state-dir {STATE}" in output, output


class ImageChecks:
    """A running container, and checks of it."""

    def __init__(self, podman: Podman, models: Path) -> None:
        """Make the first key as the refusal says, and start the server."""
        self._podman = podman
        self._port = free_port()
        command = ["keys", "add", "root", "--scope", "admin", "--state-dir", STATE]
        self._key = podman.run("run", "--rm", *_quiet({}), *LOCKED, *VOLUMES, IMAGE, *command)
        self._client = RawHttpClient(self._port, {"Authorization": f"Bearer {self._key}"})
        self._models = ["--volume", f"{models}:/models:ro"]
        self._start()

    def _start(self) -> None:
        settings = {"LEMONBUS_PORT": str(self._port), "LEMONBUS_LOAD": MODEL, "LEMONBUS_THREADS": "1"}
        settings["LEMONBUS_CTX_SIZE"] = "8192"
        words = [*_quiet(settings), *LOCKED, *VOLUMES, *self._models, "--memory", str(MEMORY)]
        self._podman.run("run", "--detach", "--name", NAME, *words, IMAGE)

    def _inside(self, *words: str) -> str:
        return self._podman.run("exec", "--env", f"LEMONBUS_API_KEY={self._key}", NAME, *words)

    def is_ready(self) -> None:
        """It loads its model, and answers."""
        wait_for(lambda: _ready(self._client), "the model is loaded", READY_S)
        answer = self._client.chat(MODEL, max_tokens=8)
        assert answer.status == 200, answer.body
        assert self._inside("id", "-u") == USER

    def has_no_compiler(self) -> None:
        """Nothing that builds programs is left in it."""
        found = self._inside("sh", "-c", "command -v gcc cc c++ ld strip make || true")
        assert not found, found

    def is_healthy_unless_it_is_drained(self) -> None:
        """The health check of the image follows the readiness of the server."""
        assert self._podman.code("healthcheck", "run", NAME) == 0
        self._inside("lemonbus", "drain")
        assert self._podman.code("healthcheck", "run", NAME) == 1
        self._inside("lemonbus", "undrain")
        assert self._podman.code("healthcheck", "run", NAME) == 0

    def keeps_within_its_memory(self) -> None:
        """The limit of the container is the memory that models are counted against."""
        found = re.search(r'^lemonbus_memory_total_bytes\{place="host"\} (\S+)$', self._metrics(), re.MULTILINE)
        assert found, "the memory of the host is known"
        assert float(found[1]) == MEMORY, found[0]

    def _metrics(self) -> str:
        return self._client.get("/metrics").body.decode()

    def reaps_orphans(self) -> None:
        """A process whose parent has ended is gone when it ends; the first process has reaped it."""
        orphan = self._inside("sh", "-c", "sleep 0.2 >&- 2>&- & echo $!")
        wait_for(lambda: self._podman.code("exec", NAME, "test", "-d", f"/proc/{orphan}") == 1, "it is reaped")

    def logs_json(self) -> None:
        """Each line is one object."""
        events = [json.loads(line)["event"] for line in self._podman.logs(NAME)]
        assert "model ready" in events, events

    def lets_a_stream_end_when_it_is_stopped(self) -> None:
        """Stop it within a stream: the stream is whole, and the container ends with 0."""
        stream = self._client.start_chat(MODEL, stream=True, max_tokens=TOKENS)
        stream.until(lambda it: len(it.events) > 2)
        stopping = self._podman.start("stop", "--time", "45", NAME)
        assert stream.finish(60).done, "the stream ended whole"
        output, _ = stopping.communicate(timeout=60)
        assert stopping.returncode == 0, output
        assert self._podman.run("inspect", "--format", "{{.State.ExitCode}}", NAME) == "0"

    def knows_its_state_after_a_restart(self) -> None:
        """Another container with the same volumes has its keys and usage."""
        self._podman.run("rm", NAME)
        self._start()
        self.is_ready()
        rows = csv.DictReader(io.StringIO(self._inside("lemonbus", "usage", "--csv")))
        counted = sum(int(row["output_tokens"]) for row in rows if row["key"] == "root")
        assert counted >= TOKENS, f"the usage has {counted} tokens"


def _quiet(settings: dict[str, str]) -> list[str]:
    """Return words of ``run``: settings, and no timer of systemd for the health check."""
    return ["--health-interval", "disable", *(f"--env={name}={value}" for name, value in settings.items())]


def _ready(client: RawHttpClient) -> bool:
    with contextlib.suppress(OSError):
        return client.get("/readyz", patience=2.0).status == 200
    return False
