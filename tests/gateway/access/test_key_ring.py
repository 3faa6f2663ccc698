"""How often a process looks at the file of keys."""

from __future__ import annotations

from pathlib import Path

import pytest

from gateway.access.key_ring import KeyRing
from protocol.config.api_keys import Scope
from protocol.config.key_file import KeyFile
from protocol.config.settings import Settings
from protocol.failures import Code
from tests.gateway.access.key_files import key, secret_of, store


class CountingRing:
    """A key ring in iterations of the event loop that a test counts, whose looks at the file are counted."""

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch) -> None:
        self.now, self.count = 100.0, 0
        look = KeyFile.refresh

        def refresh(file: KeyFile) -> bool:
            self.count += 1
            return look(file)

        patch.setattr(KeyFile, "refresh", refresh)
        settings = Settings(state_dir=str(folder), runtime_dir=str(folder / "run"))
        self.ring = KeyRing(settings, lambda: self.now)


@pytest.fixture
def keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CountingRing:
    store(tmp_path, key("ci"))
    return CountingRing(tmp_path, monkeypatch)


def test_a_request_that_is_sent_on_at_once_looks_once(keys: CountingRing) -> None:
    assert keys.ring.required()
    ci = keys.ring.find(secret_of("ci").encode())
    assert keys.ring.withdrawal(ci, [Scope.INFERENCE], "") is None
    assert keys.count == 1


def test_all_open_requests_look_once_and_notice_a_revoked_key(keys: CountingRing, tmp_path: Path) -> None:
    assert keys.ring.required()
    ci = keys.ring.find(secret_of("ci").encode())
    keys.now += 0.5
    assert [keys.ring.withdrawal(ci, [Scope.INFERENCE], "m") for _ in range(100)] == [None] * 100
    assert keys.count == 2
    store(tmp_path, key("other"))
    keys.now += 0.5
    refused = keys.ring.withdrawal(ci, [Scope.INFERENCE], "m")
    assert refused is not None
    assert refused.code is Code.UNAUTHORIZED


def test_each_request_that_arrives_looks(keys: CountingRing, tmp_path: Path) -> None:
    assert keys.ring.required()
    store(tmp_path, key("new"))
    assert keys.ring.required()
    assert keys.ring.find(secret_of("new").encode()).name == "new"
    assert keys.count == 2
