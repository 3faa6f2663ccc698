"""How a process follows the file of keys."""

from __future__ import annotations

from pathlib import Path

import pytest

from gateway.access.key_ring import KeyRing
from protocol.config.api_keys import Scope
from protocol.config.settings import Settings
from protocol.failures import Code
from tests.gateway.access.key_files import key, secret_of, store


@pytest.fixture
def ring(tmp_path: Path) -> KeyRing:
    store(tmp_path, key("ci"))
    return KeyRing(Settings(state_dir=str(tmp_path), runtime_dir=str(tmp_path / "run")))


def test_each_request_that_arrives_looks(ring: KeyRing, tmp_path: Path) -> None:
    assert ring.required()
    store(tmp_path, key("new"))
    assert ring.required()
    assert ring.find(secret_of("new").encode()).name == "new"


def test_a_request_looks_once_more_before_it_is_sent_on(ring: KeyRing, tmp_path: Path) -> None:
    assert ring.required()
    ci = ring.find(secret_of("ci").encode())
    assert ring.withdrawal(ci, [Scope.INFERENCE], "") is None
    store(tmp_path, key("other"))
    refused = ring.withdrawal(ci, [Scope.INFERENCE], "m")
    assert refused is not None
    assert refused.code is Code.UNAUTHORIZED
