"""An installation that outlived a supervisor: a repeated call joins it and gets its result."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from protocol.config.settings import Settings
from protocol.messages.backend_installs import BackendDone, InstallBackend, Installed, StartInstall
from supervisor.handlers.backend_downloads import BackendDownloads
from supervisor.handlers.backend_jobs import BackendJobs
from supervisor.handlers.backends import BackendCalls


def test_a_call_joins_an_installation_that_outlived_a_supervisor(monkeypatch: Any) -> None:
    replies: list[object] = []
    changed: list[str] = []
    jobs: Any = SimpleNamespace(dismiss=lambda _job: None)
    calls: Any = SimpleNamespace(reply=lambda _peer, _number, result: replies.append(result))
    others: Any = SimpleNamespace(reconcile=lambda: None)
    descriptor, backend = SimpleNamespace(recipe="llamacpp"), SimpleNamespace(name="cpu", directory="", path="")
    inventory: Any = SimpleNamespace(find=lambda *_: (descriptor, backend))
    downloads = BackendDownloads(lambda: 0.0)
    installs = BackendJobs(others, jobs, calls, downloads, lambda: changed.append(""))
    backends = BackendCalls(Settings(), inventory, list, others, others, calls, installs, downloads)
    order = StartInstall("llamacpp", "cpu", "b1", "digest", "/cache")
    monkeypatch.setattr("supervisor.handlers.backends.installation_key", lambda *_: ("llamacpp", "cpu"))
    ended = installs.take_over("j1", order)
    assert ended is not None
    assert installs.take_over("j2", order) is None, "one is enough"
    backends.handlers()[InstallBackend]("g1", InstallBackend(7, "llamacpp", "cpu"), b"")
    assert replies == []
    installs.handlers()[Installed]("j1", Installed(3), b"")
    ended("j1", "exit 0")
    assert replies == [BackendDone("llamacpp", "cpu", "b1", 3)]
    assert changed, "the head can run other models now"
