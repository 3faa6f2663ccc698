"""An installation that outlived a supervisor: a call that is made again joins it, and gets its result."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from protocol.messages.backend_installs import BackendDone, InstallBackend, Installed, StartInstall
from supervisor.handlers.backends import BackendJobs
from supervisor.runtime import jobs


def test_a_call_joins_an_installation_that_outlived_a_supervisor(monkeypatch: Any) -> None:
    replies: list[object] = []
    monkeypatch.setattr(jobs, "dismiss", lambda _supervisor, _job: None)
    monkeypatch.setattr(jobs, "reply", lambda _supervisor, _peer, _number, result: replies.append(result))
    supervisor: Any = SimpleNamespace(reconcile=lambda: None, scheduler=SimpleNamespace(models={}))
    descriptor, backend = SimpleNamespace(recipe="llamacpp"), SimpleNamespace(name="cpu", directory="", path="")
    inventory: Any = SimpleNamespace(find=lambda *_: (descriptor, backend))
    installs = BackendJobs(inventory, list)
    order = StartInstall("llamacpp", "cpu", "b1", "digest", "/cache")
    monkeypatch.setattr("supervisor.handlers.backends.installation_key", lambda *_: ("llamacpp", "cpu"))
    child: Any = None
    ended = installs.take_over(supervisor, "j1", child, order)
    assert ended is not None
    assert installs.take_over(supervisor, "j2", child, order) is None, "one is enough"
    installs.handlers()[InstallBackend](supervisor, "g1", InstallBackend(7, "llamacpp", "cpu"), b"")
    assert replies == []
    installs.handlers()[Installed](supervisor, "j1", Installed(3), b"")
    ended(supervisor, "j1", "exit 0")
    assert replies == [BackendDone("llamacpp", "cpu", "b1", 3)]
