"""``lemonbus keys``: the key is printed once, the file has its digest, and wrong words change nothing."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from protocol.config.api_keys import KEYS_FILE, Scope, digest, read_keys
from tests.gateway.cli.conftest import Ends


@pytest.fixture(autouse=True)
def path(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("LEMONBUS_STATE_DIR", str(tmp_path / "state"))
    return tmp_path / "state" / KEYS_FILE


def test_a_key_is_printed_alone_and_stored_as_its_digest(lemonbus: Ends, path: Path) -> None:
    words = "--scope inference,logs --models llama-* --models qwen* --requests-per-minute 60 --tokens-per-minute 9000"
    code, out, err = lemonbus("keys", "add", "ci", *words.split(), "--concurrent", "4", "--expires", "2099-01-01")
    assert code == 0, err
    (key,) = read_keys(path)
    assert (key.name, key.sha256) == ("ci", digest(out.strip()))
    assert (key.scopes, key.models) == ([Scope.INFERENCE, Scope.LOGS], ["llama-*", "qwen*"])
    assert (key.requests_per_minute, key.tokens_per_minute, key.concurrent) == (60, 9000, 4)
    assert key.expires > key.created > 0
    assert out.strip() not in path.read_text() + err


def test_list_shows_everything_but_keys(lemonbus: Ends) -> None:
    _, secret, _ = lemonbus("keys", "add", "ci", "--scope", "admin")
    _, table, _ = lemonbus("keys", "list")
    assert table.splitlines()[1].split()[:3] == ["ci", "admin", "all"]
    _, listed, _ = lemonbus("keys", "list", "--json")
    (entry,) = json.loads(listed)
    assert (entry["name"], entry["scopes"]) == ("ci", ["admin"])
    assert "sha256" not in entry
    assert secret.strip() not in table + listed


def test_revoke_removes_one_and_warns_of_the_last(lemonbus: Ends, path: Path) -> None:
    lemonbus("keys", "add", "a")
    lemonbus("keys", "add", "b")
    assert lemonbus("keys", "revoke", "a") == (0, "Revoked key a\n", "")
    assert [key.name for key in read_keys(path)] == ["b"]
    code, _, err = lemonbus("keys", "revoke", "b")
    assert code == 0
    assert "No key is left" in err
    assert read_keys(path) == []


@pytest.mark.parametrize(
    ("words", "code", "reason"),
    [
        (["add", "ci"], 1, "there is a key ci already"),
        (["add", "a/b"], 2, "letters, digits"),
        (["add", "api_key"], 2, "the name of a setting"),
        (["add", "x", "--scope", "root"], 2, "'root' is none of inference"),
        (["add", "x", "--scope", ","], 2, "is none of inference"),
        (["add", "x", "--concurrent", "0"], 2, "range"),
        (["add", "x", "--expires", "soon"], 2, "is no date"),
        (["add", "x", "--expires", "2001-01-01"], 2, "is past"),
        (["add", "x", "--models", ""], 2, "patterns of names"),
        (["revoke", "x"], 1, "there is no key x"),
        (["add"], 2, "NAME"),
    ],
)
def test_wrong_words_change_nothing(lemonbus: Ends, path: Path, words: list[str], code: int, reason: str) -> None:
    lemonbus("keys", "add", "ci")
    before = path.read_bytes()
    ended, out, err = lemonbus("keys", *words)
    assert (ended, out) == (code, "")
    assert reason in err
    assert path.read_bytes() == before


def test_a_broken_file_is_not_overwritten(lemonbus: Ends, path: Path) -> None:
    path.parent.mkdir()
    path.write_text("{")
    for words in (["add", "x"], ["list"], ["revoke", "x"]):
        code, out, err = lemonbus("keys", *words)
        assert (code, out) == (2, "")
        assert KEYS_FILE in err
    assert path.read_text() == "{"
