"""A supervisor's parts with a reloader, whose configuration file is in a folder of its own."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from protocol.config.settings import LogLevel, Settings, read_settings, write_settings
from protocol.messages.calls import CallResult
from protocol.messages.peers import Peer
from protocol.messages.reload import ReloadReport, ReloadSettings, SetLogLevel
from protocol.messages.work import Refused
from protocol.runtime.loop import Loop
from protocol.runtime.process_context import ProcessContext
from protocol.wire import envelope
from protocol.wire.endpoints import RuntimeDirectory
from supervisor.lifecycle.components import Components
from supervisor.lifecycle.runtime_directory_watch import RuntimeDirectoryWatch
from supervisor.reload.reloader import Reloader

GATEWAY = "g1"


class Takeovers:
    """The successor as the reloader sees it."""

    def __init__(self) -> None:
        self.listeners: list[tuple[str, int]] = []
        self.count = 0

    def hold_listener(self, listener: socket.socket) -> None:
        self.listeners.append(listener.getsockname())
        listener.close()

    def take_over(self) -> None:
        self.count += 1


class Reloading:
    """The parts of a supervisor with its reloader, and what it answered."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.file = folder / "lemonbus.toml"
        self.file.write_text("")
        for variable in [name for name in os.environ if name.startswith(("LEMONBUS_", "LEMONADE_"))]:
            monkeypatch.delenv(variable)
        command_line = {"flags": {"port": "4711"}, "config": str(self.file), "folder": str(folder)}
        monkeypatch.setenv("LEMONBUS_COMMAND_LINE", msgspec.json.encode(command_line).decode())
        for name in ("STATE", "CACHE", "RUNTIME"):
            monkeypatch.setenv(f"LEMONBUS_{name}_DIR", str(folder / "r" if name == "RUNTIME" else folder))
        self.runtime = RuntimeDirectory(folder / "r")
        self.settings = Settings(
            state_dir=str(folder), cache_dir=str(folder), runtime_dir=str(self.runtime.path), port=4711
        )
        write_settings(self.settings, self.runtime.path)
        loop = Loop()
        context = ProcessContext(self.runtime.path, os.urandom(6).hex(), os.getpid())
        parts = self.components = Components(self.settings, context, loop, -1)
        self.components.peers.add(Peer("gateway", GATEWAY, os.getpid()), 0.0)
        self.takeovers = Takeovers()
        self.reloader = Reloader(
            self.settings,
            context,
            loop,
            -1,
            parts.processes,
            parts.models,
            parts.scheduler.view,
            parts.calls,
            parts.errors,
            self.takeovers,
            {},
        )
        self.answers: dict[int, Any] = {}
        monkeypatch.setattr(self.components.bus, "send", self._sent)

    def _sent(self, _peer: str, message: Any, payload: bytes = b"") -> None:
        if isinstance(message, CallResult):
            self.answers[message.number] = envelope.unpack_payload(payload, ReloadReport | None)
        elif isinstance(message, Refused):
            self.answers[message.number] = message.failure

    def check_directory(self, end: Callable[[], None]) -> None:
        parts = self.components
        view = parts.scheduler.view
        RuntimeDirectoryWatch(parts.process_context, parts.loop, parts.peers, parts.workers, view, parts.messages, end)

    def ask(self, number: int, *, dry_run: bool = False) -> None:
        self.reloader.handlers()[ReloadSettings](GATEWAY, ReloadSettings(number, dry_run), b"")

    def set_log_level(self, number: int, level: LogLevel) -> None:
        self.reloader.handlers()[SetLogLevel](GATEWAY, SetLogLevel(number, level), b"")

    def answer(self, number: int) -> Any:
        self.run_until(lambda: number in self.answers)
        return self.answers[number]

    def run_until(self, done: Callable[[], bool]) -> None:
        end = time.monotonic() + 20
        while not done():
            assert time.monotonic() < end
            self.components.loop.run_once(0.1)

    @property
    def written(self) -> Settings:
        return read_settings(self.runtime.path)

    def close(self) -> None:
        self.components.processes.kill_all()
        self.run_until(lambda: len(self.components.processes) == 0)
        self.components.state_writer.close()
        self.components.bus.close()
        self.components.loop.close()
        self.runtime.release()
