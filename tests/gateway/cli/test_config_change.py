"""``lemonbus config get``, ``set`` and ``unset``: what happens to the file, and what is said about the server."""

from __future__ import annotations

import fcntl
import json
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gateway.cli import config_change
from tests.gateway.cli.conftest import Ends
from tests.gateway.fake_server import FakeServer, Reply

TEXT = """# ours
slots = 4   # of each model

[models."Qwen3-0.6B-GGUF"]
ttl = 300
env = { TOKEN = "hush" }
"""
RELOAD, SETTINGS = ("POST", "/internal/reload"), ("GET", "/internal/settings")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "lemonbus" / "lemonbus.toml"
    path.parent.mkdir()
    path.write_text(TEXT)
    return path


@pytest.fixture(autouse=True)
def no_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LEMONBUS_URL", "http://127.0.0.1:1")


def changed(setting: str, *effects: str) -> dict[str, Any]:
    return {"setting": setting, "old": 4, "new": 8, "effects": list(effects)}


def reload(*changes: dict[str, Any], **more: Any) -> Reply:
    answer = {"status": "success", "applied": True, "changes": list(changes), "warnings": [], "repeated": False}
    return Reply({**answer, **more})


def settings(**values: tuple[Any, str]) -> Reply:
    found = {name.replace("__", "."): {"value": value, "origin": origin} for name, (value, origin) in values.items()}
    return Reply({"release": "1", "settings": found})


def test_one_value_changes_and_everything_else_stays(file: Path, lemonbus: Ends) -> None:
    file.chmod(0o640)
    code, out, err = lemonbus("config", "set", "slots", "8")
    assert (code, out) == (0, f"Changed: {file}\n")
    assert err == "lemonbus: slots: no server is running: it takes effect at the next start\n"
    assert file.read_text() == TEXT.replace("slots = 4 ", "slots = 8 ")
    assert stat.S_IMODE(file.stat().st_mode) == 0o640
    assert lemonbus("config", "set", "slots", "8")[1] == f"Unchanged: {file}\n"
    assert lemonbus("config", "unset", 'models."Qwen3-0.6B-GGUF"')[0] == 0
    assert file.read_text() == "# ours\nslots = 8   # of each model\n"
    assert list(file.parent.iterdir()) == [file]


def test_a_link_stays_a_link(file: Path, lemonbus: Ends, tmp_path: Path) -> None:
    real = tmp_path / "real.toml"
    file.rename(real)
    file.symlink_to(real)
    assert lemonbus("config", "set", "slots", "8")[0] == 0
    assert file.is_symlink()
    assert "slots = 8" in real.read_text()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file to another user")
def test_the_owner_stays(file: Path, lemonbus: Ends) -> None:
    os.chown(file, 12345, 23456)
    assert lemonbus("config", "set", "slots", "8")[0] == 0
    assert (file.stat().st_uid, file.stat().st_gid) == (12345, 23456)


def test_without_a_file_the_users_own_is_made_for_nobody_else(lemonbus: Ends, tmp_path: Path) -> None:
    file = tmp_path / "lemonbus" / "lemonbus.toml"
    code, out, _ = lemonbus("config", "set", "models.tiny.options.ctx_size", "512")
    assert (code, out) == (0, f"Made: {file}\n")
    assert file.read_text() == "[models.tiny]\noptions.ctx_size = 512\n"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_what_is_not_allowed_makes_no_file(lemonbus: Ends, tmp_path: Path) -> None:
    assert lemonbus("config", "set", "slots", "many")[0] == 2
    assert not (tmp_path / "lemonbus").exists()


@pytest.mark.parametrize("before", [True, False])
def test_another_file_is_named_before_or_after_the_verb(
    before: bool, file: Path, lemonbus: Ends, tmp_path: Path
) -> None:
    other = tmp_path / "other.toml"
    given = ["--config", str(other)]
    words = [*given, "set", "slots", "8"] if before else ["set", "slots", "8", *given]
    assert lemonbus("config", *words)[1] == f"Made: {other}\n"
    assert (other.read_text(), file.read_text()) == ("slots = 8\n", TEXT)
    assert lemonbus("config", "get", "slots", *given)[1] == "8\n"


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (
            ["set", "slots", "many"],
            "slots: expected a whole number from 0 up to 256, got 'many'; the file is unchanged",
        ),
        (["set", "slots", "1", "2"], "slots: expected one value: only lists have several"),
        (["set", "slts", "1"], "unknown setting 'slts'; did you mean slots?"),
        (["set", "models.Qwen3-0.6B.ttl", "3"], 'a name with dots needs quotes: [models."Qwen3-0.6B"]'),
        (["set", "models.a.tll", "3"], "models.a.tll: unknown setting; there are: options, args"),
        (["set", "defaults.llamacpp.options.ctx_size", "--", "-5"], "ctx_size must be from -1 up to"),
        (["set", "slots.x", "3"], "slots.x: a part of the key has a value that is not a table"),
        (["set", "admin_api_key", "secret"], "write - instead of the admin_api_key"),
        (["set", "slots", "--jsno"], "No such option"),
    ],
)
def test_wrong_values_change_nothing(
    words: list[str], reason: str, file: Path, server: FakeServer, lemonbus: Ends
) -> None:
    code, out, err = lemonbus("config", *words)
    assert (code, out) == (2, "")
    assert reason in " ".join(err.split())
    assert file.read_text() == TEXT
    assert not server.asked


def test_what_is_not_in_the_file_cannot_be_removed(file: Path, lemonbus: Ends) -> None:
    assert lemonbus("config", "unset", "port") == (1, "", "lemonbus: port is not in the file\n")
    assert file.read_text() == TEXT


def test_a_file_that_is_not_toml_is_left_to_a_person(file: Path, lemonbus: Ends) -> None:
    file.write_text("slots = \n")
    code, _, err = lemonbus("config", "set", "slots", "8")
    assert code == 2
    assert f"{file}: only a person can mend this file: Invalid value (at line 1, column 9)" in err


def test_a_wrong_setting_of_the_file_can_be_removed(file: Path, lemonbus: Ends) -> None:
    file.write_text("slots = 'x'\n")
    assert lemonbus("config", "set", "port", "1")[2].endswith("got 'x'; the file is unchanged\n")
    assert lemonbus("config", "unset", "slots")[0] == 0
    assert file.read_text() == ""


def test_a_key_is_read_from_standard_input_and_never_shown(file: Path, server: FakeServer, lemonbus: Ends) -> None:
    server.replies[RELOAD] = reload({"setting": "api_key", "old": "", "new": "********", "effects": ["now"]})
    server.replies[SETTINGS] = settings(api_key=("********", f"{file}:3"))
    code, out, err = lemonbus("config", "set", "api_key", "-", stdin="secret\n")
    assert code == 0
    assert 'api_key = "secret"\n' in file.read_text()
    assert "secret" not in out + err
    assert "Authorization" not in server.asked[0][3], "the server does not know the new key yet"
    assert lemonbus("config", "get", "api_key")[1] == "********\n"
    assert lemonbus("config", "get", 'models."Qwen3-0.6B-GGUF"')[1].splitlines() == [
        'models."Qwen3-0.6B-GGUF".env.TOKEN = ********',
        'models."Qwen3-0.6B-GGUF".ttl = 300.0',
    ]


def test_the_server_reads_the_new_file_and_the_output_says_when_it_takes_effect(
    file: Path, server: FakeServer, lemonbus: Ends
) -> None:
    def answer(_body: Any) -> Reply:
        assert "slots = 8" in file.read_text()
        return reload(changed("slots", "new loads only"), warnings=["take care"])

    server.replies[RELOAD] = answer
    server.replies[SETTINGS] = settings(slots=(8, f"{file}:2"))
    code, out, err = lemonbus("config", "set", "slots", "8")
    assert (code, err) == (0, "lemonbus: take care\n")
    assert [line.split() for line in out.splitlines()][1:] == [
        ["SETTING", "OLD", "NEW", "TAKES", "EFFECT"],
        ["slots", "4", "8", "new", "loads", "only"],
    ]
    answered = json.loads(lemonbus("config", "set", "slots", "8", "--json")[1])
    assert (answered["setting"], answered["file"], answered["change"]) == ("slots", str(file), "unchanged")
    assert answered["reload"]["changes"][0]["effects"] == ["new loads only"]


@pytest.mark.parametrize(("status", "failure"), [(400, "invalid_request"), (409, "conflict")])
@pytest.mark.parametrize("exists", [True, False])
def test_a_file_that_the_server_refuses_is_put_back(
    exists: bool, status: int, failure: str, file: Path, server: FakeServer, lemonbus: Ends
) -> None:
    if not exists:
        file.unlink()
    file.parent.chmod(0o700)
    seen = []

    def refuse(_body: Any) -> Reply:
        seen.append(file.read_text())
        return Reply({"error": {"message": f"{file}:2: slots: too many", "code": failure}}, status)

    server.replies[RELOAD] = refuse
    code, out, err = lemonbus("config", "set", "slots", "8")
    assert (code, out) == (1, "")
    assert err == f"lemonbus: the server refuses this, and the file is as it was: slots: too many ({failure})\n"
    assert "slots = 8" in seen[0]
    assert (file.read_text() if exists else file.exists()) == (TEXT if exists else False)


def test_a_link_to_no_file_is_put_back(file: Path, server: FakeServer, lemonbus: Ends) -> None:
    file.unlink()
    file.symlink_to("elsewhere.toml")
    server.replies[RELOAD] = Reply({"error": {"message": "too many", "code": "invalid_request"}}, 400)
    assert lemonbus("config", "set", "slots", "8")[0] == 1
    assert (file.is_symlink(), file.exists()) == (True, False)


@pytest.mark.parametrize(
    ("running", "notice"),
    [
        ({"slots": (8, "{file}:2")}, "the server used this already"),
        ({"slots": (8, "default")}, "the server used this already"),
        (
            {"slots": (5, "--slots")},
            "no effect: the server was started with --slots, which takes precedence over the file",
        ),
        (
            {"slots": (5, "LEMONBUS_SLOTS")},
            "no effect: the server was started with LEMONBUS_SLOTS, which takes precedence over the file",
        ),
        (
            {"port": (1, "/etc/lemonbus/lemonbus.toml:1"), "slots": (4, "default")},
            "no effect: the server does not read this file, but /etc/lemonbus/lemonbus.toml",
        ),
        ({"slots": (4, "default")}, "no effect: the server does not read this file"),
    ],
)
def test_why_a_change_has_no_effect(
    running: dict[str, tuple[Any, str]], notice: str, file: Path, server: FakeServer, lemonbus: Ends
) -> None:
    server.replies[RELOAD] = reload()
    server.replies[SETTINGS] = settings(
        **{name: (value, origin.format(file=file)) for name, (value, origin) in running.items()}
    )
    assert lemonbus("config", "set", "slots", "8")[2] == f"lemonbus: slots: {notice}\n"


def test_a_server_that_refuses_the_caller_has_not_read_the_file(file: Path, server: FakeServer, lemonbus: Ends) -> None:
    server.replies[RELOAD] = Reply({"error": {"message": "an admin key is needed"}}, 403)
    code, _, err = lemonbus("config", "set", "slots", "8")
    assert code == 4
    assert err == (
        f"lemonbus: the server may not have read {file}; `lemonbus reload` tries again: an admin key is needed\n"
    )
    assert "slots = 8" in file.read_text()


def test_two_commands_do_not_change_a_file_at_once(file: Path, lemonbus: Ends) -> None:
    folder = os.open(file.parent, os.O_RDONLY)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        code, _, err = lemonbus("config", "set", "slots", "8")
    finally:
        os.close(folder)
    assert (code, file.read_text()) == (1, TEXT)
    assert f"another command is changing a file in {file.parent}; try again" in err


def test_a_file_that_an_editor_saved_meanwhile_is_not_overwritten(
    file: Path, lemonbus: Ends, monkeypatch: pytest.MonkeyPatch
) -> None:
    checked: Callable[..., Any] = config_change.resolved_text

    def saves(*given: Any) -> Any:
        file.write_text("slots = 5\n")
        return checked(*given)

    monkeypatch.setattr(config_change, "resolved_text", saves)
    code, _, err = lemonbus("config", "set", "slots", "8")
    assert (code, file.read_text()) == (1, "slots = 5\n")
    assert "was changed meanwhile; nothing is written" in err
    assert list(file.parent.iterdir()) == [file]


def test_a_directory_that_cannot_be_written(file: Path, lemonbus: Ends, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> int:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(config_change.os, "chown", refuse)
    code, _, err = lemonbus("config", "set", "slots", "8")
    assert (code, err) == (2, f"lemonbus: {file}: Permission denied; the file is unchanged\n")
    assert (file.read_text(), list(file.parent.iterdir())) == (TEXT, [file])


@pytest.mark.usefixtures("file")
def test_get(lemonbus: Ends, monkeypatch: pytest.MonkeyPatch) -> None:
    assert lemonbus("config", "get", "slots") == (0, "4\n", "")
    assert lemonbus("config", "get", "host")[1] == "127.0.0.1\n"
    assert lemonbus("config", "get", 'models."Qwen3-0.6B-GGUF".ttl')[1] == "300.0\n"
    assert lemonbus("config", "get", "models.other.ttl") == (1, "", "lemonbus: models.other.ttl is not set\n")
    monkeypatch.setenv("LEMONBUS_SLOTS", "7")
    assert json.loads(lemonbus("config", "get", "slots", "--json")[1]) == {
        "value": 7,
        "origin": "environment",
        "where": "LEMONBUS_SLOTS",
    }
