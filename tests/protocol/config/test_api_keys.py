"""The file of API keys: what is stored, how it is written, and what is refused."""

from __future__ import annotations

import json
import stat
import threading
from pathlib import Path
from typing import Any

import pytest

from protocol.config.api_keys import (
    KEYS_FILE,
    ApiKey,
    KeyRights,
    Scope,
    digest,
    locked_keys,
    make_key,
    read_keys,
    write_keys,
)

GOOD = {"name": "ci", "sha256": "0" * 64}


def test_a_key_is_256_random_bits() -> None:
    made = {make_key(KeyRights(name="ci"), 0.0).secret for _ in range(100)}
    assert len(made) == 100
    assert all(key.startswith("lb-") and len(key) == 3 + 43 for key in made)


def test_the_file_is_private_whole_and_has_no_key(tmp_path: Path) -> None:
    secret = make_key(KeyRights(name="ci"), 0.0).secret
    path = tmp_path / KEYS_FILE
    key = ApiKey(name="ci", sha256=digest(secret), scopes=[Scope.LOGS], models=["a*"], concurrent=3, expires=5.0)
    write_keys(path, [key])
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert secret not in path.read_text()
    assert read_keys(path) == [key]
    assert [entry.name for entry in tmp_path.iterdir()] == [KEYS_FILE]


@pytest.mark.parametrize(
    "keys",
    [
        [{**GOOD, "name": "../x"}],
        [{**GOOD, "name": ""}],
        [{**GOOD, "name": "a\n"}],
        [{**GOOD, "sha256": "0"}],
        [{**GOOD, "scopes": ["root"]}],
        [{**GOOD, "scopes": []}],
        [{**GOOD, "concurrent": -1}],
        [{**GOOD, "requests_per_hour": 1}],
        [GOOD, GOOD],
        [{**GOOD, "name": "api_key"}],
        {},
    ],
)
def test_a_wrong_file_is_refused_as_a_whole(tmp_path: Path, keys: Any) -> None:
    (tmp_path / KEYS_FILE).write_text(json.dumps({"keys": keys}))
    with pytest.raises(ValueError, match=KEYS_FILE):
        read_keys(tmp_path / KEYS_FILE)


def test_a_change_waits_for_another_process_and_no_longer_than_a_bound(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("protocol.config.api_keys._LOCK_TIMEOUT_S", 0.05)
    path = tmp_path / KEYS_FILE
    with locked_keys(path), pytest.raises(TimeoutError, match="another process"), locked_keys(path):
        pass


def test_two_programs_lose_no_key_of_each_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("protocol.config.api_keys._LOCK_TIMEOUT_S", 30.0)  # each write waits for the disk
    path = tmp_path / KEYS_FILE

    def add(first: int) -> None:
        for number in range(first, first + 10):
            with locked_keys(path) as keys:
                write_keys(path, [*keys, ApiKey(name=f"k{number}", sha256=digest(str(number)))])

    threads = [threading.Thread(target=add, args=(first,)) for first in (0, 10, 20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert len(read_keys(path)) == 30


@pytest.mark.parametrize(
    ("scopes", "allowed"),
    [(["admin"], [*Scope]), (["inference"], ["inference"]), (["logs", "metrics"], ["logs", "metrics"])],
)
def test_admin_includes_the_other_scopes(scopes: list[Scope], allowed: list[str]) -> None:
    key = ApiKey(name="k", sha256="0" * 64, scopes=[Scope(scope) for scope in scopes])
    assert {scope for scope in Scope if key.allows(scope)} == set(allowed)
