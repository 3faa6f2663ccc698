"""Looks at a running server from outside: its answers, its processes, and what its engines report."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import psutil  # type: ignore[import-untyped]

from tests.support import processes
from tests.support.clients.http_client import RawHttpClient, engine_client
from tests.support.clients.http_exchange import HttpExchange
from tests.support.processes import ProcessInfo
from tests.support.waiting import wait_for


class ServerInspector:
    """A server, by its keeper, its port and its runtime directory."""

    runtime: Path
    client: RawHttpClient
    keeper_pid: int
    admin_headers: Mapping[str, str]
    """With a key of its settings, if it has one."""

    def listens(self) -> bool:
        """Whether a process takes connections on its port."""
        try:
            self.client.connect().close()
        except OSError:
            return False
        return True

    def health(self) -> Any:
        return self.client.get("/v1/health", **self.admin_headers).json()

    def state(self) -> Any:
        """What the server reports about itself: ``granted``, ``queued``, ``models`` …"""
        return self.health()["lemonbus"]

    def model_state(self, model: str) -> str:
        """A model's state in the lifecycle; empty if it has no worker."""
        return next((str(each["state"]) for each in self.state()["models"] if each["model_name"] == model), "")

    def wait_loaded(self, *models: str) -> None:
        """Wait until the models are ready, however they came to be loaded."""
        for model in models:
            wait_for(partial(self._is_ready, model), f"{model} is ready", 30.0)

    def _is_ready(self, model: str) -> bool:
        return self.model_state(model) == "ready"

    def assert_idle(self) -> None:
        """No grant is held and no request waits."""
        wait_for(self._is_idle, "no grant is left")

    def _is_idle(self) -> bool:
        state = self.state()
        return state["granted"] == state["queued"] == 0

    def busy_slots(self, model: str) -> int:
        """How many slots are busy, as the engine reports it; -1 if it does not answer."""
        engine = self.engine_now(model)
        if engine is None:
            return -1
        try:
            slots = engine_client(engine).get("/slots", patience=2.0).json()
            return sum(slot["is_processing"] for slot in slots)
        except (OSError, ValueError, TypeError):
            return -1

    def gateway_of(self, exchange: HttpExchange) -> int:
        """The gunicorn worker that holds the other end of a connection, waited for."""
        port = exchange.connection.getsockname()[1]

        def holder() -> int:
            for pid in self.gateway_pids():
                with contextlib.suppress(psutil.NoSuchProcess):  # it may end at any time
                    for connection in psutil.Process(pid).net_connections("tcp"):
                        if connection.raddr and connection.raddr.port == port:
                            return pid
            return 0

        return wait_for(holder, f"a gateway has the connection of port {port}")

    def process_tree(self) -> list[ProcessInfo]:
        """Every living process of this server, the supervisor included."""
        return processes.of_server(self.runtime)

    def workers(self) -> list[ProcessInfo]:
        """The workers, spare ones included."""
        return [process for process in self.process_tree() if process.runs("workers")]

    def engine(self, model: str) -> ProcessInfo:
        """The engine that serves a model, waited for."""
        return wait_for(lambda: self.engine_now(model), f"an engine of {model}")

    def engine_now(self, model: str) -> ProcessInfo | None:
        """The engine that serves a model at this moment."""
        all_processes = self.process_tree()
        pids = {process.pid for process in all_processes if process.runs("workers")}
        ends = tuple(f"/{model.removeprefix('extra.')}{end}" for end in ("", ".gguf", ".bin", ".onnx"))
        found = [
            process
            for process in all_processes
            if process.parent in pids and any(word.endswith(ends) for word in process.words)
        ]
        return found[0] if found else None

    def engine_pid(self, model: str) -> int:
        return self.engine(model).pid

    def worker_pid(self, model: str) -> int:
        """The worker that owns a model's engine."""
        return self.engine(model).parent

    @property
    def supervisor_pid(self) -> int:
        """The present supervisor, waited for."""

        def present() -> int:
            # For a moment, a process that it starts also has its name, and becomes the keeper's child if the supervisor dies at that moment.
            named = [
                each.pid
                for each in self.process_tree()
                if each.parent == self.keeper_pid and processes.name(each.pid) == "lemonbus-superv"
            ]
            return named[-1] if named else 0

        return wait_for(present, "a supervisor runs")

    @property
    def fork_server_pid(self) -> int:
        """The fork server, waited for."""

        def present() -> int:
            # For a moment, a process that it forks also has its name.
            named = [each.pid for each in self.process_tree() if processes.name(each.pid) == "lemonbus-fork"]
            return named[0] if len(named) == 1 else 0

        return wait_for(present, "one fork server runs, and forks nothing")

    def gateway_master(self) -> int:
        """gunicorn's master; 0 while there is none."""
        gateways = {process.pid: process for process in self.process_tree() if process.runs("gateway")}
        return next((pid for pid, process in gateways.items() if process.parent not in gateways), 0)

    def gateway_pids(self) -> list[int]:
        """gunicorn's workers."""
        master = self.gateway_master()
        return [process.pid for process in processes.children(master)] if master else []
