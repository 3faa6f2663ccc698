"""The real server under test: ``python -m supervisor.keeper`` with everything that it starts, in folders of its own."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, Final, Self

import msgspec

from protocol.config import settings_environment
from protocol.config.settings import Settings
from tests.support import processes
from tests.support.clients.http_client import RawHttpClient
from tests.support.log_file import LogFile
from tests.support.models.tiny_models import link_models
from tests.support.ports import free_port
from tests.support.server_inspector import ServerInspector
from tests.support.waiting import wait_for

ROOT: Final = Path(__file__).parents[2]
START: Final = 60.0
"""Seconds until it must answer. It takes two on a quiet machine; the limit is far higher, because a late server fails

all tests that share it. ``make bench`` measures how fast it starts.
"""

END: Final = 30.0
"""Seconds until it must have ended after SIGTERM, if no request runs; on a quiet machine it takes a third of a second."""


class LemonbusServer(ServerInspector):
    """One server. Use it as a context manager: leaving it stops it and checks that nothing is left.

    ``settings`` are fields of :class:`Settings`; ``models`` the tiny models it offers (all, if none is named),
    each as ``extra.NAME``; ``environment`` more variables; ``group`` the control group that it starts in.
    """

    def __init__(
        self, *models: str, wait: bool = True, runtime: Path | None = None, root: Path = ROOT, **settings: Any
    ) -> None:
        self.home = Path(tempfile.mkdtemp(prefix="lb-", dir="/tmp"))
        self.runtime = runtime or self.home / "r"
        self._root = root
        """The folder of the code that it runs."""
        self.models = self.home / "models"
        link_models(self.models, *models)
        self._environment: dict[str, str] = settings.pop("environment", {})
        self._group: Path | None = settings.pop("group", None)
        self._port: int = settings.pop("port", 0) or free_port()
        self.settings = msgspec.convert({**self._defaults(), **settings}, Settings)
        self._client = RawHttpClient(self._port)
        key = self.settings.admin_api_key or self.settings.api_key
        self.admin_headers = {"Authorization": f"Bearer {key}"} if key else {}
        self.used = True
        """Whether a client may have used it since this was made false."""
        self._exit_code = 0
        """What it must exit with."""
        self._log = LogFile(self.home / "log")
        self._process = self._spawn()
        if wait:
            try:
                self.wait_ready()
            except BaseException:
                self.kill()
                self.clean()
                raise

    def _defaults(self) -> dict[str, Any]:
        return {
            "port": self.port,
            "state_dir": str(self.home / "state"),
            "cache_dir": str(self.home / "cache"),
            "runtime_dir": str(self.runtime),
            "extra_models_dir": str(self.models),
            "log_level": "debug",
            "log_format": "json",
            "offline": True,
            "ctx_size": 8192,
            "threads": 1,
            "memory_reserve": 0,  # whatever else runs on this machine, no model leaves for it
            "gateway_workers": 2,
            "peer_silence": 60.0,  # longer than a test waits, unless the test is about this limit
        }

    def _spawn(self) -> subprocess.Popen[bytes]:
        environment = {key: value for key, value in os.environ.items() if not key.startswith("LEMON")}
        handed = settings_environment.export(
            {settings_environment.VARIABLES[0]: msgspec.json.encode(self.settings).decode()}
        )
        environment |= handed
        environment["SERVER_UNDER_TEST"] = str(self.runtime)  # engines inherit it, so leftovers can be found
        environment |= self._environment
        files = [int(handed[name]) for name in handed if name == settings_environment.FILE_VARIABLE]
        command = [sys.executable, "-S", "-m", "supervisor.keeper"]
        if self._group:
            command = ["sh", "-c", 'echo $$ > "$0" && exec "$@"', str(self._group / "cgroup.procs"), *command]
        try:
            return subprocess.Popen(
                command,
                cwd=self._root,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=self._log.stderr,
                pass_fds=files,
            )
        finally:
            for file in files:
                os.close(file)

    @property
    def lines(self) -> list[dict[str, Any]]:
        """Its log, a list that grows."""
        return self._log.lines

    @property
    def unread(self) -> list[str]:
        """The lines on stderr that are not JSON."""
        return self._log.strays

    @property
    def port(self) -> int:
        self.used = True
        return self._port

    @property
    def client(self) -> RawHttpClient:
        self.used = True
        return self._client

    def wait_ready(self) -> None:
        """Wait until ``/health`` answers 200, and all gateways of this server have started."""
        wait_for(self._answers, f"the server is ready; it said {self.unread[-5:]} {self.lines[-5:]}", START)

    def _answers(self) -> bool:
        assert self._process.poll() is None, f"it ended with {self._process.poll()}: {self.unread} {self.lines[-9:]}"
        if sum(line["event"] == "gateway worker up" for line in self.lines) < self.settings.gateways:
            return False  # and a gateway of an earlier, dead server may still answer on this port
        with contextlib.suppress(OSError):
            return self.client.get("/health", patience=1.0).status == 200
        return False

    @property
    def keeper_pid(self) -> int:
        """The process of ``lemonbus serve``."""
        return self._process.pid

    @property
    def alive(self) -> bool:
        """Whether the keeper runs."""
        return self._process.poll() is None

    def signal(self, number: int) -> None:
        self._process.send_signal(number)

    def wait_exit(self, deadline: float = END) -> int:
        """Wait for the keeper's end; return its exit status."""
        return self._process.wait(deadline)

    def stop(self, deadline: float = END) -> None:
        """SIGTERM; it must end with 0 (unless a test killed it) and leave no process behind."""
        if self.alive:
            self.signal(signal.SIGTERM)
        status = self.wait_exit(deadline)
        assert status == self._exit_code, f"exit {status}: {self.unread}"
        self.assert_nothing_left()

    def expect_exit_code(self, code: int) -> None:
        """Tell :meth:`stop` what to expect: a test has ended the server in another way than by SIGTERM."""
        self._exit_code = code

    def kill_supervisor(self) -> int:
        """SIGKILL the supervisor alone; the keeper starts another one. Return the pid of the one that died."""
        pid = self.supervisor_pid
        processes.kill(pid)
        return pid

    def kill_keeper(self) -> None:
        """SIGKILL the keeper alone: the server ends."""
        self.expect_exit_code(-signal.SIGKILL)
        self._process.kill()
        self._process.wait()

    def assert_nothing_left(self) -> None:
        wait_for(lambda: not self.process_tree(), f"no process of {self.runtime} is left: {self.process_tree()}")

    def last_lines(self, count: int = 80) -> str:
        """Return the end of its log, for the report of a failed test."""
        shown = [" ".join(f"{key}={value}" for key, value in line.items()) for line in self.lines[-count:]]
        return "\n".join([*shown, *self.unread])

    def kill(self) -> None:
        """Kill everything at once, whatever state it is in: for failed tests."""
        for process in self.process_tree():
            with contextlib.suppress(ProcessLookupError):
                processes.kill(process.pid)
        self._process.wait()

    def clean(self) -> None:
        """Remove its folders, and close what a test left open."""
        self.client.close()
        self._log.close()
        shutil.rmtree(self.home, ignore_errors=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            if kind is None:
                self.stop()
        finally:
            self.kill()
            self.clean()
