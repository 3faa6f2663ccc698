"""A reload, with the process that really reads the file: what changes is written and handed over, a wrong file changes nothing."""

from __future__ import annotations

import errno
import os
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import Mock

import msgspec
import pytest
import structlog

from protocol.config.settings import SETTINGS_FILE, read_origins, write_settings
from protocol.messages.reload import ReloadReport, SettingEffect
from supervisor.lifecycle.succession import Succession
from supervisor.reload import resolution
from supervisor.reload.reloader import settings_until_next_start
from supervisor.reload.resolution import RESULT_VARIABLE, Resolution
from tests.supervisor.reload.reloading import Reloading
from tests.support.ports import free_port


@pytest.fixture
def reloading(monkeypatch: pytest.MonkeyPatch) -> Iterator[Reloading]:
    with tempfile.TemporaryDirectory(dir="/tmp", prefix="lb-") as folder:
        made = Reloading(Path(folder), monkeypatch)
        yield made
        made.close()


def test_what_changed_is_applied_by_a_new_supervisor(reloading: Reloading) -> None:
    reloading.file.write_text("max_loaded_models = 7\n")
    reloading.ask(1)
    report = reloading.answer(1)
    assert report.applied
    (change,) = report.changes
    assert (change.setting, change.old, change.new, change.effects) == ("max_loaded_models", 4, 7, [SettingEffect.NOW])
    assert change.origin == f"{reloading.file}:1"
    assert reloading.written == msgspec.structs.replace(reloading.settings, max_loaded_models=7)
    reloading.run_until(lambda: reloading.takeovers.count == 1)


def test_a_log_level_stays_until_the_configuration_is_read_again(reloading: Reloading) -> None:
    reloading.set_log_level(1, "debug")
    reloading.run_until(lambda: reloading.takeovers.count == 1)
    assert reloading.answer(1) is None
    assert reloading.written == msgspec.structs.replace(reloading.settings, log_level="debug")
    assert read_origins(reloading.runtime.path)["log_level"] == "POST log-level"
    reloading.set_log_level(2, "debug")
    reloading.answer(2)
    reloading.file.write_text("max_loaded_models = 7\n")
    reloading.ask(3)
    changes = reloading.answer(3).changes
    assert [(each.setting, each.old, each.new) for each in changes] == [
        ("max_loaded_models", 4, 7),
        ("log_level", "debug", "info"),
    ]
    reloading.run_until(lambda: reloading.takeovers.count == 2)
    assert "log_level" not in read_origins(reloading.runtime.path)


def test_without_a_change_nothing_happens(reloading: Reloading) -> None:
    reloading.ask(1)
    assert reloading.answer(1) == ReloadReport(applied=True, changes=[])
    assert reloading.takeovers.count == 0


def test_a_dry_run_only_tells(reloading: Reloading) -> None:
    reloading.file.write_text("body_limit = 9\nport = 1")
    reloading.ask(1, dry_run=True)
    report = reloading.answer(1)
    assert [change.setting for change in report.changes] == ["body_limit"], "a flag of the start wins over the file"
    assert not report.applied
    assert reloading.written == reloading.settings
    assert reloading.takeovers.count == 0


@pytest.mark.parametrize("text", ["ports = 1\n", '[models."x.y"]\nttl = 5\n'])
def test_a_dry_run_is_not_logged(reloading: Reloading, text: str) -> None:
    reloading.file.write_text(text)
    with structlog.testing.capture_logs() as lines:
        reloading.ask(1, dry_run=True)
        reloading.answer(1)
        assert [line for line in lines if line["log_level"] in ("warning", "error")] == []
        reloading.ask(2)
        reloading.answer(2)
    assert [line["log_level"] for line in lines if line["log_level"] in ("warning", "error")], "a reload is"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("max_loaded_models = 7\nports = 1\n", ":2: unknown setting 'ports'"),
        ("max_loaded_models = -1\n", ":1: max_loaded_models"),
        ("max_loaded_models = \n", "expected TOML"),
        ('\nllamacpp_args = "--port 1"\n', ":2: llamacpp_args must not contain --port"),
        ('[defaults.llamacpp]\n\nargs = "--nonsense"\n', ":3: defaults.llamacpp.args: llamacpp_args: unknown argument"),
        ("host = '0.0.0.0'\n", ":1: refusing to bind 0.0.0.0 without an API key"),
    ],
)
def test_a_wrong_file_is_refused_whole(reloading: Reloading, text: str, message: str) -> None:
    reloading.file.write_text(text)
    reloading.ask(1)
    failure = reloading.answer(1)
    assert failure.http_status == 400
    assert message in failure.message
    assert reloading.written == reloading.settings
    assert reloading.takeovers.count == 0


def test_a_name_of_no_model_is_a_warning_with_its_line(reloading: Reloading) -> None:
    """This is not an error: a model that a client deletes must not keep the server from its next start."""
    reloading.file.write_text('[models."SmolLM2-135M-Instruct-GUFF"]\nttl = 3\n\n[models."owner/repo:Q4"]\nttl = 3\n')
    reloading.ask(1)
    (warning,) = reloading.answer(1).warnings
    assert warning.startswith(
        f"{reloading.file}:1: models.SmolLM2-135M-Instruct-GUFF: Model 'SmolLM2-135M-Instruct-GUFF'"
    )
    assert "did you mean SmolLM2-135M-Instruct-GGUF" in warning


@pytest.mark.parametrize(
    ("program", "where"), [("no-such-llama", "on PATH"), ("/gone/llama", "where the settings say")]
)
def test_a_backend_whose_program_is_missing_is_a_warning_with_its_line(
    reloading: Reloading, program: str, where: str
) -> None:
    """It is reported before a client gets an error; the program may be installed later."""
    reloading.file.write_text(f'llama_server = "{program}"\nllamacpp_backend = "system"\n')
    reloading.ask(1)
    name = program.rpartition("/")[2]
    text = f"{name} was not found {where}. Models of recipe llamacpp cannot be loaded with it."
    assert reloading.answer(1).warnings == [f"{reloading.file}:2: llamacpp_backend: {text}"]


def test_a_file_that_is_gone_is_refused(reloading: Reloading) -> None:
    reloading.file.unlink()
    reloading.ask(1)
    assert "no such configuration file" in reloading.answer(1).message
    assert reloading.takeovers.count == 0


def test_a_new_address_is_listened_at_before_anything_else_changes(
    reloading: Reloading, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LEMONBUS_COMMAND_LINE", msgspec.json.encode({"config": str(reloading.file)}).decode())
    port = free_port()
    with socket.create_server(("127.0.0.1", port)):
        reloading.file.write_text(f"port = {port}\n")
        reloading.ask(1)
        failure = reloading.answer(1)
        reloading.ask(3, dry_run=True)
        assert reloading.answer(3) == failure, "a dry run says so as well"
    assert f"cannot listen on 127.0.0.1:{port}" in failure.message
    assert reloading.written == reloading.settings
    reloading.ask(2)
    assert reloading.answer(2).applied
    assert reloading.takeovers.listeners == [("127.0.0.1", port)]
    assert reloading.written.port == port


def test_calls_that_come_while_the_file_is_read_get_a_later_reading(reloading: Reloading) -> None:
    reloading.ask(1, dry_run=True)
    reloading.file.write_text("max_loaded_models = 7\n")
    reloading.ask(2, dry_run=True)
    reloading.ask(3, dry_run=True)
    reloading.answer(1)
    assert [len(reloading.answer(number).changes) for number in (2, 3)] == [1, 1]


def test_a_reading_that_hangs_is_ended(reloading: Reloading, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("supervisor.reload.reloader.READING_TIMEOUT_S", 0.5)
    reloading.file.unlink()
    os.mkfifo(reloading.file)  # to be read, it would have to be written to
    reloading.ask(1)
    failure = reloading.answer(1)
    assert failure.http_status == 500
    assert "could not be read within 0.5 s" in failure.message
    assert reloading.takeovers.count == 0


def test_the_origins_of_what_is_in_use_are_written_with_it(reloading: Reloading) -> None:
    before = {"state_dir": "LEMONBUS_STATE_DIR", "slots": "--slots"}
    write_settings(reloading.settings, reloading.runtime.path, before)
    reloading.file.write_text('max_loaded_models = 7\nload = ["m"]\n')
    reloading.ask(1)
    assert reloading.answer(1).applied
    origins = read_origins(reloading.runtime.path)
    assert origins["max_loaded_models"] == f"{reloading.file}:1"
    assert (origins["state_dir"], origins["port"]) == ("LEMONBUS_STATE_DIR", "--port")
    assert not {"load", "slots"} & origins.keys(), "one takes effect at the next start, the other one is a default now"


def test_what_takes_effect_at_the_next_start_keeps_its_value(reloading: Reloading) -> None:
    new = msgspec.structs.replace(reloading.settings, state_dir="/elsewhere", load=["m"], max_loaded_models=7)
    assert settings_until_next_start(reloading.settings, new) == msgspec.structs.replace(
        reloading.settings, max_loaded_models=7
    )


def test_what_takes_effect_at_the_next_start_alone_leaves_the_present_settings_in_their_file(
    reloading: Reloading,
) -> None:
    file = reloading.runtime.path / SETTINGS_FILE
    before = file.stat().st_ino
    reloading.file.write_text('load = ["m"]\n')
    reloading.ask(1)
    assert [change.effects for change in reloading.answer(1).changes] == [[SettingEffect.NEXT_START]]
    assert file.stat().st_ino == before, "a file that is replaced while this supervisor goes on ends the server"
    assert reloading.takeovers.count == 0


def test_the_settings_of_a_successor_are_not_damage(reloading: Reloading, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("supervisor.lifecycle.runtime_directory_watch.CHECK_INTERVAL_S", 0.01)
    ended: list[bool] = []
    reloading.check_directory(lambda: ended.append(True))
    parts = reloading.components
    view = parts.scheduler.view
    Succession(
        reloading.settings, parts.loop, parts.peers, parts.gateway, parts.barrier, view, parts.messages, Mock()
    ).take_over()
    write_settings(reloading.settings, reloading.runtime.path)
    rounds: list[bool] = []
    reloading.components.loop.every(0.01, lambda: rounds.append(True))
    reloading.run_until(lambda: len(rounds) > 10)
    assert not ended
    reloading.components.messages.end_transition()
    reloading.run_until(lambda: bool(ended))


def test_settings_that_were_deleted_while_no_supervisor_ran_are_missed(
    reloading: Reloading, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("supervisor.lifecycle.runtime_directory_watch.CHECK_INTERVAL_S", 0.01)
    (reloading.runtime.path / SETTINGS_FILE).unlink()
    ended: list[bool] = []
    reloading.check_directory(lambda: ended.append(True))
    reloading.run_until(lambda: bool(ended))


def test_settings_that_cannot_be_written_are_refused_and_change_nothing(
    reloading: Reloading, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LEMONBUS_COMMAND_LINE", msgspec.json.encode({"config": str(reloading.file)}).decode())
    monkeypatch.setattr("supervisor.reload.reloader.write_settings", no_space_left)
    reloading.file.write_text(f"max_loaded_models = 7\nport = {free_port()}\n")
    reloading.ask(1)
    failure = reloading.answer(1)
    assert failure.http_status == 507
    assert "into the runtime directory: No space left on device; nothing has changed" in failure.message
    assert reloading.written == reloading.settings
    assert (reloading.takeovers.listeners, reloading.takeovers.count) == ([], 0)


def no_space_left(*_: object) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_reading_whose_supervisor_has_ended_ends_silently(monkeypatch: pytest.MonkeyPatch) -> None:
    read_fd, write_fd = os.pipe()
    os.close(read_fd)
    monkeypatch.setattr("supervisor.reload.resolution.resolve_again", lambda _: Resolution())
    assert resolution.main({RESULT_VARIABLE: str(write_fd)}) == 0


def test_each_reading_says_how_many_hangups_it_was_for(reloading: Reloading) -> None:
    done: list[int] = []
    reloading.reloader.on_hangups_done = done.append
    reloading.ask(1)
    for _ in range(2):
        reloading.reloader.hangup()
    reloading.run_until(lambda: len(done) == 2)
    assert done == [0, 2], "a hangup during a reading is for the next one"
