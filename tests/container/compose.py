"""deploy/container/compose.yaml, run by podman-compose as its first lines say."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

from tests.container.podman import Podman
from tests.support.clients.http_client import RawHttpClient
from tests.support.ports import free_port
from tests.support.waiting import wait_for

PUBLISHED = "127.0.0.1:13305:13305"
READY_S = 60.0


def check(podman: Podman, folder: Path, file: Path) -> None:
    """Start the service without a key, which is refused, and with one; ask it through its published port, and end it."""
    port = free_port()
    written = file.read_text()
    for part, used in ((PUBLISHED, f"127.0.0.1:{port}:13305"), ("image: lemonbus", "image: localhost/lemonbus")):
        assert part in written, part
        written = written.replace(part, used)
    service = folder / "service"
    service.mkdir()
    (service / file.name).write_text(written)
    code, output = _compose(podman, service, "up", "--detach")
    assert code, "it starts without a key"
    assert "write it into the file .env" in output, output
    (service / ".env").write_text("LEMONBUS_ADMIN_API_KEY=secret\n")
    code, output = _compose(podman, service, "up", "--detach")
    assert not code, output
    client = RawHttpClient(port)
    try:
        wait_for(lambda: _status(client, "/readyz") == 200, "the service is ready", READY_S)
        assert _status(client, "/v1/models") == 401, "it wants the key"
        assert client.get("/v1/models", Authorization="Bearer secret").status == 200
        code, output = _compose(podman, service, "exec", "-T", "lemonbus", "lemonbus", "status")
        assert re.search(r"^lemonbus .* ok, up ", output, re.MULTILINE), output
    finally:
        code, output = _compose(podman, service, "down", "--volumes")
    assert not code, output
    assert not podman.run("ps", "--all", "--quiet"), "nothing is left"
    print("container: compose.yaml was up and down", flush=True)


def _status(client: RawHttpClient, path: str) -> int:
    try:
        return client.get(path, patience=2.0).status
    except OSError:
        return 0


def _compose(podman: Podman, folder: Path, *words: str) -> tuple[int, str]:
    """Run podman-compose in the folder of the file; return its exit status and what it printed."""
    done = subprocess.run(
        ["podman-compose", "--podman-path", podman.program, *words],
        cwd=folder,
        env={name: value for name, value in os.environ.items() if not name.startswith("LEMON")},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=120,
        check=False,
    )
    return done.returncode, done.stdout
