"""A real gateway process with a fake supervisor, and requests to it."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from protocol.runtime.process_context import ProcessContext
from tests.gateway.fake_supervisor import SupervisorHarness, wait_for
from tests.gateway.fake_worker import DEADLINE
from tests.gateway.raw_http import parsed, read_to_end, request, send
from tests.support.ports import free_port
from tests.support.server import START

ROOT = Path(__file__).resolve().parents[2]


class GatewayHarness(SupervisorHarness):
    """One gateway, and the supervisor that it talks to."""

    def __init__(self, folder: Path, module: str = "gateway", **changes: Any) -> None:
        self.module = module
        """What the gateway process runs."""
        super().__init__(folder, **changes)
        self.port = free_port()
        self.listener = socket.create_server(("127.0.0.1", self.port))
        self.gateway: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start the gateway and wait until it answers and, if the supervisor welcomes it, admits requests."""
        self.launch()
        probe = "/health" if self.welcoming else "/live"
        wait_for(lambda: self.gateways and self.get(probe)[0] == 200, START)

    def launch(self) -> None:
        """Start the gateway, and return at once."""
        process_context = ProcessContext(self.runtime, self.boot, self.keeper.pid)
        self.gateway = subprocess.Popen(
            [sys.executable, "-m", self.module],
            cwd=ROOT,
            env={
                **os.environ,
                **process_context.environment(),
                "PYTHONPATH": str(ROOT),
                "LEMONBUS_LISTEN_FD": str(self.listener.fileno()),
            },
            pass_fds=[self.listener.fileno()],
            start_new_session=True,
        )

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=DEADLINE)

    def raw(self, request: bytes) -> tuple[int, dict[str, str], bytes]:
        """Send bytes on a connection of their own; read to its end. ConnectionError: it has ended without an answer."""
        with self.connect() as connection:
            send(connection, request)
            answer = read_to_end(connection)
        if not answer:
            raise ConnectionResetError
        return parsed(answer)

    def get(self, path: str, **headers: str) -> tuple[int, dict[str, str], bytes]:
        return self.raw(request("GET", path, b"", **headers))

    def post(self, path: str, body: Any, **headers: str) -> tuple[int, dict[str, str], bytes]:
        return self.raw(request("POST", path, body, **headers))

    def close(self) -> None:
        """Kill supervisor and keeper, and end the gateway."""
        self.end_processes()
        if self.gateway is not None:
            with contextlib.suppress(ProcessLookupError):
                self.gateway.send_signal(signal.SIGTERM)
            try:
                self.gateway.wait(DEADLINE)
            finally:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(self.gateway.pid, signal.SIGKILL)
        super().close()
        self.listener.close()


@contextlib.contextmanager
def running_gateway(folder: Path, module: str = "gateway", **changes: Any) -> Iterator[GatewayHarness]:
    """Run a gateway with a fake supervisor."""
    harness = GatewayHarness(folder, module, **changes)
    try:
        harness.start()
        yield harness
    finally:
        harness.close()
