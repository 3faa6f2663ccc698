"""A gateway on another "machine": ``lemonbus gateway`` with folders of its own, connected to a server through tcp of this machine."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

from protocol.config.cluster_keys import read_cluster_keys
from protocol.config.gateway_settings import VARIABLE, GatewaySettings, export
from protocol.wire.bus_address import ClusterMembership, decode_token, encode_token
from tests.support import processes
from tests.support.clients.http_client import RawHttpClient
from tests.support.log_file import LogFile
from tests.support.ports import free_port
from tests.support.server import ROOT, LemonbusServer
from tests.support.waiting import wait_for

LAUNCH = ROOT / "deploy" / "launch"
END = 30.0


class RemoteGateway:
    """One host of gateways. Use it as a context manager: leaving it ends it and checks that nothing is left."""

    def __init__(
        self,
        address: str,
        token: str,
        name: str = "edge1",
        *flags: str,
        code: str = "",
        wait: bool = True,
        prefix: Sequence[str] = (),
    ) -> None:
        """``code``: Python that runs in place of the host, with its variables. ``prefix``: words before the command."""
        self.home = Path(tempfile.mkdtemp(prefix="lb-", dir="/tmp"))
        self.runtime = self.home / "r"
        self.name = name
        self.port = free_port()
        self.client = RawHttpClient(self.port)
        self._log = LogFile(self.home / "log")
        environment = {key: value for key, value in os.environ.items() if not key.startswith("LEMON")}
        environment["SERVER_UNDER_TEST"] = str(self.runtime)
        words = ["gateway", "--supervisor", f"tcp://{address}", "--port", str(self.port), "--name", name]
        words += ["--gateway-workers", "1", "--runtime-dir", str(self.runtime), *flags]
        environment["LEMONBUS_TOKEN"] = token
        if code:
            membership = ClusterMembership(address, decode_token(token))
            settings = GatewaySettings(membership, name, "127.0.0.1", self.port, str(self.runtime), 1)
            environment |= export(settings)
        passed = [int(environment[VARIABLE])] if code else []
        self.process = subprocess.Popen(
            [*prefix, sys.executable, *(["-c", code] if code else [str(LAUNCH), *words])],
            cwd=ROOT,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=self._log.stderr,
            pass_fds=passed,
        )
        for descriptor in passed:
            os.close(descriptor)
        if wait:
            try:
                wait_for(self.answers, f"the gateway answers; it said {self.output()}", 60.0)
            except BaseException:
                self.process.kill()
                self.process.wait()
                raise

    @classmethod
    def of(cls, server: LemonbusServer, name: str = "edge1") -> Self:
        """Start one for a server, with the token of its state directory."""
        return cls(server.settings.cluster_address, token_of(server), name)

    def output(self) -> list[Any]:
        """What it has written: records, and lines that are none."""
        return [*self._log.lines, *self._log.strays]

    def answers(self) -> bool:
        assert self.process.poll() is None, f"it ended with {self.process.poll()}: {self.output()}"
        with contextlib.suppress(OSError):
            return self.client.get("/live", patience=2.0).status == 200
        return False

    def processes(self) -> list[processes.ProcessInfo]:
        return processes.of_server(self.runtime)

    def gateway_pids(self) -> list[int]:
        """The gunicorn workers."""
        found = self.processes()
        masters = {each.pid for each in found if each.runs("gateway") and each.parent == self.process.pid}
        return [each.pid for each in found if each.parent in masters]

    def stop(self) -> int:
        """End it in order; return its exit code."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        return self.process.wait(END)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.client.close()
        try:
            self.stop()
            wait_for(lambda: not self.processes(), "no process is left", END)
        finally:
            for process in self.processes():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(process.pid, signal.SIGKILL)
            self._log.close()
            shutil.rmtree(self.home, ignore_errors=True)


def token_of(server: LemonbusServer) -> str:
    """Return the token of a server, as ``lemonbus nodes token`` prints it."""
    return encode_token(read_cluster_keys(Path(server.settings.state_dir)).of_member())
