"""The real thing under test: ``python -m supervisor`` with everything it starts, in a world of its own."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from functools import partial
from pathlib import Path
from typing import Any, Final, Self

import msgspec
import psutil  # type: ignore[import-untyped]

from protocol.settings import Settings
from tests.house import processes
from tests.house.client import Client
from tests.house.exchange import Exchange
from tests.house.models import link_models
from tests.house.ports import free_port
from tests.house.processes import Process
from tests.house.waiting import wait_for

ROOT: Final = Path(__file__).parents[2]
START: Final = 20.0
"""Seconds until it must answer; generous, because other tests share the machine."""


class Server:
    """One house. Use it as a context manager: leaving it stops it and checks that nothing is left.

    ``settings`` are fields of :class:`Settings`; ``models`` the tiny models it offers (all, if none is named),
    each as ``extra.NAME``.
    """

    def __init__(self, *models: str, wait: bool = True, runtime: Path | None = None, **settings: Any) -> None:
        self.home = Path(tempfile.mkdtemp(prefix="lb-", dir="/tmp"))
        self.runtime = runtime or self.home / "r"
        self.models = self.home / "models"
        link_models(self.models, *models)
        self.port: int = settings.pop("port", 0) or free_port()
        self.settings = msgspec.convert({**self._defaults(), **settings}, Settings)
        self.client = Client(self.port)
        self.lines: list[dict[str, Any]] = []
        self.unread: list[str] = []
        """What came on stderr and is no JSON line."""
        self._murdered = False
        self._process = self._spawn()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
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
        }

    def _spawn(self) -> subprocess.Popen[bytes]:
        environment = {key: value for key, value in os.environ.items() if not key.startswith("LEMON")}
        environment["LEMONBUS_SETTINGS"] = msgspec.json.encode(self.settings).decode()
        environment["HOUSE_UNDER_TEST"] = str(self.runtime)  # engines keep it: how leftovers are found
        return subprocess.Popen(
            [sys.executable, "-m", "supervisor"],
            cwd=ROOT,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )

    def _read(self) -> None:
        assert self._process.stderr is not None
        for line in self._process.stderr:
            try:
                self.lines.append(json.loads(line))
            except ValueError:
                self.unread.append(line.decode("utf-8", "replace"))

    def wait_ready(self) -> None:
        """Wait until ``/health`` says 200."""
        wait_for(self._answers, f"the server is ready; it said {self.unread[-5:]} {self.lines[-5:]}", START)

    def _answers(self) -> bool:
        assert self._process.poll() is None, f"it ended with {self._process.poll()}: {self.unread} {self.lines[-9:]}"
        with contextlib.suppress(OSError):
            return self.client.get("/health", patience=1.0).status == 200
        return False

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def alive(self) -> bool:
        """Whether the supervisor runs."""
        return self._process.poll() is None

    def health(self) -> Any:
        return self.client.get("/v1/health").json()

    def state(self) -> Any:
        """What the house says of itself: ``granted``, ``queued``, ``models`` …"""
        return self.health()["lemonbus"]

    def model_state(self, model: str) -> str:
        """A model's state in the lifecycle; empty if it has no worker."""
        return next((str(each["state"]) for each in self.state()["models"] if each["model_name"] == model), "")

    def wait_loaded(self, *models: str) -> None:
        """Wait until the models are ready, however they came to be loaded."""
        for model in models:
            wait_for(partial(self._is_ready, model), f"{model} is ready", 10.0)

    def _is_ready(self, model: str) -> bool:
        return self.model_state(model) == "ready"

    def assert_idle(self) -> None:
        """No grant is held and nobody waits."""
        wait_for(lambda: self.state()["granted"] == 0 and self.state()["queued"] == 0, "no grant is left")

    def busy_slots(self, model: str) -> int:
        """How many slots work, by the engine's own word; -1 if it does not answer."""
        engine = self.engine_now(model)
        if engine is None:
            return -1
        try:
            slots = Client(int(engine.option("--port"))).get("/slots", patience=2.0).json()
            return sum(slot["is_processing"] for slot in slots)
        except (OSError, ValueError, TypeError):
            return -1

    def gateway_of(self, exchange: Exchange) -> int:
        """The gunicorn worker that holds the other end of a connection, waited for."""
        port = exchange.connection.getsockname()[1]

        def holder() -> int:
            for pid in self.gateway_pids():
                for connection in psutil.Process(pid).net_connections("tcp"):
                    if connection.raddr and connection.raddr.port == port:
                        return pid
            return 0

        return wait_for(holder, f"a gateway has the connection of port {port}")

    def process_tree(self) -> list[Process]:
        """Every living process of this house, the supervisor included."""
        return processes.of_house(self.runtime)

    def workers(self) -> list[Process]:
        """The workers, spare ones included."""
        return [process for process in self.process_tree() if process.runs("workers")]

    def engine(self, model: str) -> Process:
        """The engine that serves a model, waited for."""
        return wait_for(lambda: self.engine_now(model), f"an engine of {model}")

    def engine_now(self, model: str) -> Process | None:
        """The engine that serves a model at this moment."""
        pids = {worker.pid for worker in self.workers()}
        found = [
            process
            for process in self.process_tree()
            if process.parent in pids and process.mentions(f"/{model.removeprefix('extra.')}.gguf")
        ]
        return found[0] if found else None

    def engine_pid(self, model: str) -> int:
        return self.engine(model).pid

    def worker_pid(self, model: str) -> int:
        """The worker that owns a model's engine."""
        return self.engine(model).parent

    def gateway_master(self) -> int:
        """gunicorn's master; 0 while there is none."""
        gateways = {process.pid: process for process in self.process_tree() if process.runs("gateway")}
        return next((pid for pid, process in gateways.items() if process.parent not in gateways), 0)

    def gateway_pids(self) -> list[int]:
        """gunicorn's workers."""
        master = self.gateway_master()
        return [process.pid for process in processes.children(master)] if master else []

    def signal(self, number: int) -> None:
        self._process.send_signal(number)

    def wait_exit(self, deadline: float = 10.0) -> int:
        """Wait for the supervisor's end; return its exit status."""
        status = self._process.wait(deadline)
        self._reader.join(deadline)
        return status

    def stop(self, deadline: float = 10.0) -> None:
        """SIGTERM; it must end with 0 (unless a test killed it) and leave no process behind."""
        if self.alive:
            self.signal(signal.SIGTERM)
        status = self.wait_exit(deadline)
        assert status == (-signal.SIGKILL if self._murdered else 0), f"exit {status}: {self.unread}"
        self.assert_nothing_left()

    def kill_supervisor(self) -> None:
        """SIGKILL the supervisor alone."""
        self._murdered = True
        self._process.kill()
        self._process.wait()

    def assert_nothing_left(self) -> None:
        wait_for(lambda: not self.process_tree(), f"no process of {self.runtime} is left: {self.process_tree()}")

    def last_lines(self, count: int = 80) -> str:
        """The end of its log, for the report of a test that failed."""
        shown = [" ".join(f"{key}={value}" for key, value in line.items()) for line in self.lines[-count:]]
        return "\n".join([*shown, *self.unread])

    def kill(self) -> None:
        """End everything at once, whatever state it is in: for tests that failed."""
        for process in self.process_tree():
            with contextlib.suppress(ProcessLookupError):
                processes.kill(process.pid)
        self._process.wait()
        self._reader.join(5.0)

    def clean(self) -> None:
        """Remove its folders, and close what a test left open."""
        self.client.close()
        if not self._reader.is_alive() and self._process.stderr is not None:
            self._process.stderr.close()
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
