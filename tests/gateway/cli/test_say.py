"""``lemonbus say``: the sound goes into a file or a pipe, and an incomplete one is an error."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.gateway.cli.conftest import Ends
from tests.gateway.cli.terminal_process import TerminalProcess
from tests.gateway.fake_server import FakeServer, Reply

SPEECH = ("POST", "/v1/audio/speech")


def test_it_writes_a_file_in_the_form_of_its_name(server: FakeServer, lemonbus: Ends, tmp_path: Path) -> None:
    server.replies[SPEECH] = Reply(pieces=["abc", "def"])
    file = tmp_path / "a.WAV"
    assert lemonbus("say", "A", "hello", "-o", str(file), "--voice", "alloy", "--speed", "1.5") == (0, "", "")
    assert file.read_text() == "abcdef"
    expected = {"model": "A", "input": "hello", "voice": "alloy", "speed": 1.5, "response_format": "wav"}
    assert server.last() == expected


@pytest.mark.parametrize(
    ("words", "form"), [([], "mp3"), (["-o", "a.txt"], "mp3"), (["-o", "a.wav", "--format", "pcm"], "pcm")], ids=str
)
def test_the_form_without_a_name(
    server: FakeServer, lemonbus: Ends, words: list[str], form: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    server.replies[SPEECH] = Reply(pieces=["abc"])
    code, out, _ = lemonbus("say", "A", *words, stdin="from a pipe\n")
    assert (code, out) == (0, "" if words else "abc")
    request: dict[str, Any] = server.last()
    assert (request["input"], request["response_format"]) == ("from a pipe\n", form)


def test_a_broken_answer_leaves_no_file(server: FakeServer, lemonbus: Ends, tmp_path: Path) -> None:
    server.replies[SPEECH] = Reply(pieces=["abc"], cut=True)
    file = tmp_path / "a.wav"
    code, _, err = lemonbus("say", "A", "hello", "-o", str(file))
    assert code == 1
    assert "broke off" in err
    assert not file.exists()


def test_a_refusal_keeps_an_existing_file(server: FakeServer, lemonbus: Ends, tmp_path: Path) -> None:
    server.replies[SPEECH] = Reply({"error": {"message": "there is no voice 'bob'"}}, status=400)
    file = tmp_path / "a.wav"
    file.write_text("old")
    code, _, err = lemonbus("say", "A", "hello", "-o", str(file))
    assert (code, file.read_text()) == (1, "old")
    assert "no voice 'bob'" in err


def test_an_empty_text_is_refused(server: FakeServer, lemonbus: Ends) -> None:
    code, _, err = lemonbus("say", "A", " ")
    assert code == 2
    assert "empty" in err


@pytest.mark.usefixtures("server")
def test_a_terminal_gets_no_sound() -> None:
    with TerminalProcess("say", "A", "hello") as terminal:
        terminal.until("Name a file with -o")
        assert terminal.ends() == 2
