"""``lemonbus keys``: the running server changes its keys; a file is only changed if its directory is named; wrong arguments change nothing."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path

import pytest

from protocol.config.api_keys import KEYS_FILE, Scope, digest, read_keys
from tests.gateway.cli.conftest import Ends
from tests.gateway.fake_server import FakeServer, Reply
from tests.support.ports import free_port

CHANGED = {"status": "success", "name": "ci", "file": "/var/lib/lemonbus/keys.json"}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state" / KEYS_FILE


@pytest.fixture
def offline(monkeypatch: pytest.MonkeyPatch, lemonbus: Ends, path: Path) -> Ends:
    """Commands for the directory of a server that does not run."""
    monkeypatch.setenv("LEMONBUS_URL", f"http://127.0.0.1:{free_port()}")

    def run(*words: str) -> tuple[int, str, str]:
        return lemonbus("keys", *words, "--state-dir", str(path.parent))

    return run


# ---- The running server ---------------------------------------------------------------------------------------------


def test_the_running_server_adds_the_key_and_says_where(lemonbus: Ends, server: FakeServer) -> None:
    server.replies["POST", "/internal/keys"] = Reply(
        {**CHANGED, "key": "lb-x", "first": True, "valid_keys": 1, "valid_admin_keys": 1}
    )
    code, out, err = lemonbus("keys", "add", "ci", "--scope", "admin", "--models", "a*,b*", "--models", "c")
    assert (code, out) == (0, "lb-x\n")
    assert server.last()["models"] == ["a*", "b*", "c"]
    assert server.last()["scopes"] == ["admin"]
    assert "Written to /var/lib/lemonbus/keys.json. " in err
    assert (
        f"The server at {server.url} has applied the change. It now has 1 valid key, including those in its settings."
        in err
    )
    assert (
        "every client now needs one. `lemonbus` and `systemctl reload` read theirs from LEMONBUS_ADMIN_API_KEY" in err
    )


def test_the_running_server_revokes_a_key(lemonbus: Ends, server: FakeServer) -> None:
    server.replies["DELETE", "/internal/keys/c%20i"] = Reply({**CHANGED, "valid_keys": 2, "valid_admin_keys": 0})
    code, out, err = lemonbus("keys", "revoke", "c i")
    assert (code, out) == (0, "Revoked key c i\n")
    assert "It now has 2 valid keys, including those in its settings." in err
    assert "No key has the scope admin." in err
    assert "--state-dir /var/lib/lemonbus" in err


def test_the_running_server_lists_its_keys(lemonbus: Ends, server: FakeServer) -> None:
    limits = {"requests_per_minute": 0, "tokens_per_minute": 0, "concurrent": 0, "expires": 0.0}
    limits |= {"tokens_per_day": 0, "tokens_per_month": 0}
    keys = [
        {"name": "admin_api_key", "origin": "settings", "scopes": ["admin"], "models": [], "created": 0.0, **limits}
    ]
    server.replies["GET", "/internal/keys"] = Reply({"file": "/s/keys.json", "required": True, "keys": keys})
    code, out, err = lemonbus("keys", "list")
    assert (code, err) == (0, "The file: /s/keys.json.\n")
    assert out.splitlines()[1].split()[:3] == ["admin_api_key", "admin", "all"]
    assert json.loads(lemonbus("keys", "list", "--json")[1]) == keys


@pytest.mark.parametrize("words", [["add", "ci"], ["list"], ["revoke", "ci"]])
def test_without_a_server_nothing_is_written(
    lemonbus: Ends, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, words: list[str]
) -> None:
    monkeypatch.setenv("LEMONBUS_PORT", str(free_port()))
    before = sorted(tmp_path.rglob("*"))
    code, out, err = lemonbus("keys", *words)
    assert (code, out) == (3, "")
    assert "Nothing was changed" in err
    assert "--state-dir" in err
    assert sorted(tmp_path.rglob("*")) == before


def test_a_refusal_says_what_an_administrator_can_do(lemonbus: Ends, server: FakeServer) -> None:
    server.replies["POST", "/internal/keys"] = Reply({"error": {"message": "an API key is required"}}, 401)
    code, out, err = lemonbus("keys", "add", "ci")
    assert (code, out) == (4, "")
    assert "LEMONBUS_ADMIN_API_KEY" in err
    assert "--state-dir" in err


# ---- A state directory ----------------------------------------------------------------------------------------------


def test_a_key_is_printed_alone_and_stored_as_its_digest(offline: Ends, path: Path) -> None:
    words = "--scope inference,logs --models llama-* --models qwen* --requests-per-minute 60 --tokens-per-minute 9000"
    code, out, err = offline("add", "ci", *words.split(), "--concurrent", "4", "--expires", "2099-01-01")
    assert code == 0, err
    (key,) = read_keys(path)
    assert (key.name, key.sha256) == ("ci", digest(out.strip()))
    assert (key.scopes, key.models) == ([Scope.INFERENCE, Scope.LOGS], ["llama-*", "qwen*"])
    assert (key.requests_per_minute, key.tokens_per_minute, key.concurrent) == (60, 9000, 4)
    assert key.expires > key.created > 0
    assert out.strip() not in path.read_text() + err
    assert f"Written to {path}. The file has 1 valid key. No server is running at http://" in err
    assert "applies the change at its next start, or now if it runs at another address" in err


def test_a_server_that_does_not_read_the_file_is_told_from_one_that_does(
    lemonbus: Ends, server: FakeServer, path: Path
) -> None:
    """This server is open: it accepts the key that is in the file for a moment, and also requests without a key."""
    server.replies["GET", "/live"] = Reply({})
    code, out, err = lemonbus("keys", "add", "ci", "--scope", "admin", "--state-dir", str(path.parent))
    assert (code, out) == (1, "")
    assert f"the server at {server.url} does not read {path}: nothing was changed" in err
    assert not path.exists()


def test_a_first_key_that_a_server_did_not_answer_for_is_not_called_harmless(
    lemonbus: Ends, server: FakeServer, path: Path
) -> None:
    server.replies["GET", "/live"] = Reply({})
    server.replies["GET", "/internal/keys-probe"] = Reply({"error": {"message": "the server is stopping"}}, 503)
    path.parent.mkdir()
    code, out, err = lemonbus("keys", "add", "ci", "--scope", "admin", "--state-dir", str(path.parent))
    assert (code, out, path.exists()) == (1, "", False)
    assert "the server is stopping" in err
    assert "requires a key from every client until it is restarted" in err


@pytest.mark.parametrize("closed", [True, False])
def test_the_first_key_of_the_file_need_not_be_that_of_the_server(
    lemonbus: Ends, server: FakeServer, path: Path, closed: bool
) -> None:
    def probe(_: object) -> Reply:
        authorized = "Authorization" in server.asked[-1][3]
        return Reply({}, 404 if authorized or not (closed or path.exists()) else 401)

    server.replies["GET", "/live"] = Reply({})
    server.replies["GET", "/internal/keys-probe"] = probe
    path.parent.mkdir()
    code, _, err = lemonbus("keys", "add", "root", "--scope", "admin", "--state-dir", str(path.parent))
    assert code == 0, err
    assert ("It is the first key" in err) is not closed


def test_a_full_disk_is_named_and_changes_nothing(offline: Ends, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    offline("add", "a", "--scope", "admin")
    before = path.read_bytes()

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("protocol.config.api_keys.write_keys", full)
    for words in (["add", "b"], ["revoke", "a"]):
        assert offline(*words) == (1, "", f"lemonbus: {path}: No space left on device; the keys are unchanged\n")
    assert path.read_bytes() == before


def test_list_shows_everything_but_keys(offline: Ends) -> None:
    _, secret, _ = offline("add", "ci", "--scope", "admin")
    _, table, _ = offline("list")
    assert table.splitlines()[1].split()[:3] == ["ci", "admin", "all"]
    _, listed, _ = offline("list", "--json")
    (entry,) = json.loads(listed)
    assert (entry["name"], entry["scopes"]) == ("ci", ["admin"])
    assert "sha256" not in entry
    assert secret.strip() not in table + listed


def test_revoke_removes_one_and_warns_of_the_last(offline: Ends, path: Path) -> None:
    offline("add", "a", "--scope", "admin")
    offline("add", "b", "--scope", "admin")
    code, out, _ = offline("revoke", "a")
    assert (code, out) == (0, "Revoked key a\n")
    assert [key.name for key in read_keys(path)] == ["b"]
    code, _, err = offline("revoke", "b")
    assert code == 0
    assert "The file has no valid key any more" in err, "the settings may have one"
    assert read_keys(path) == []


def test_a_directory_without_a_file_says_nothing_of_the_server(offline: Ends, path: Path) -> None:
    code, _, err = offline("list")
    assert code == 0
    assert err == (
        f"The file: {path}. The file does not exist: a server of this directory has only the keys of its settings.\n"
    )


@pytest.mark.parametrize(
    ("words", "code", "reason"),
    [
        (["add", "ci"], 1, "the key ci exists already"),
        (["add", "a/b"], 2, "letters, digits"),
        (["add", "api_key"], 2, "the name of a setting"),
        (["add", "x", "--scope", "root"], 2, "'root' is not one of inference"),
        (["add", "x", "--scope", ","], 2, "is not one of inference"),
        (["add", "x", "--concurrent", "0"], 2, "range"),
        (["add", "x", "--expires", "soon"], 2, "is not a date"),
        (["add", "x", "--expires", "2001-01-01"], 2, "is past"),
        (["add", "x", "--models", ""], 2, "patterns of names"),
        (["add", "x", "--models", "a*,"], 2, "patterns of names"),
        (["revoke", "x"], 1, "there is no key x"),
        (["add"], 2, "NAME"),
    ],
)
def test_wrong_words_change_nothing(offline: Ends, path: Path, words: list[str], code: int, reason: str) -> None:
    offline("add", "ci")
    before = path.read_bytes()
    ended, out, err = offline(*words)
    assert (ended, out) == (code, "")
    assert reason in err
    assert path.read_bytes() == before


def test_a_broken_file_is_not_overwritten(offline: Ends, path: Path) -> None:
    path.parent.mkdir()
    path.write_text("{")
    for words in (["add", "x"], ["list"], ["revoke", "x"]):
        code, out, err = offline(*words)
        assert (code, out) == (2, "")
        assert KEYS_FILE in err
    assert path.read_text() == "{"
