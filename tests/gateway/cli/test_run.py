"""``lemonbus run``: one answer, a broken answer, and a conversation."""

from __future__ import annotations

import base64
import json
import stat
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gateway.cli.api_client import ApiClient
from gateway.cli.chat.images import without_images
from gateway.cli.chat.parameters import PARAMETERS
from gateway.cli.chat.session import ChatSession
from gateway.cli.exit_codes import CommandError
from tests.gateway.cli.canned_responses import CHAT, DONE, chunk, end
from tests.gateway.cli.conftest import Ends
from tests.gateway.cli.terminal_process import TerminalProcess
from tests.gateway.fake_server import FakeServer, Reply

PIXELS = {
    "type": "image_url",
    "image_url": {"url": f"data:image/png;base64,{base64.b64encode(b'pixels').decode()}"},
}
"""The part of a message that has the bytes ``pixels``."""


def test_run_prints_the_answer(server: FakeServer, lemonbus: Ends) -> None:
    server.replies[CHAT] = Reply(
        pieces=[": ping\n\n", chunk(role="assistant"), chunk(reasoning_content="hm"), chunk(content="Grü"),
                chunk(content="ße")[:20], chunk(content="ße")[20:], end(), DONE]
    )  # fmt: skip
    words = ["run", "A", "hi", "--system", "be short", "--max-tokens", "9", "--temperature", "0"]
    assert lemonbus(*words) == (0, "Grüße\n", "")
    request = server.last()
    assert request["messages"] == [{"role": "system", "content": "be short"}, {"role": "user", "content": "hi"}]
    assert (request["model"], request["max_tokens"], request["temperature"]) == ("A", 9, 0)


def test_run_reads_a_pipe_and_prints_json(server: FakeServer, lemonbus: Ends) -> None:
    server.replies[CHAT] = Reply(pieces=[chunk(content="yes"), end("length"), DONE])
    code, out, _ = lemonbus("run", "A", "-", "--json", stdin="from a pipe")
    assert code == 0
    assert json.loads(out) == {
        "model": "A",
        "content": "yes",
        "finish_reason": "length",
        "usage": {"prompt_tokens": 3, "completion_tokens": 2},
    }
    assert server.last()["messages"] == [{"role": "user", "content": "from a pipe"}]
    code, out, err = lemonbus("run", "A", stdin="from a pipe")
    assert (code, out) == (0, "yes\n")
    assert "cut" in err


@pytest.mark.parametrize(
    ("pieces", "cut", "code", "expected"),
    [
        ([chunk(content="so"), 'data: {"error":{"message":"gone","code":"backend_died","request_id":"r"}}\n\n'],
         False, 1, "gone (backend_died, r)"),
        ([chunk(content="so"), end()], False, 1, "without its end mark"),
        ([chunk(content="so")], True, 1, "broke off"),
    ],
)  # fmt: skip
def test_a_broken_answer_is_an_error(
    pieces: list[str], cut: bool, code: int, expected: str, server: FakeServer, lemonbus: Ends
) -> None:
    server.replies[CHAT] = Reply(pieces=pieces, cut=cut)
    ended, out, err = lemonbus("run", "A", "hi")
    assert (ended, out) == (code, "so\n")
    assert expected in err


def test_a_conversation_keeps_messages_survives_errors_and_can_be_cleared(server: FakeServer) -> None:
    def reply(request: Any) -> Reply:
        if request["messages"][-1]["content"] == "fail":
            return Reply({"error": {"message": "busy", "code": "overloaded"}}, 503)
        return Reply(pieces=[chunk(content=f"got {len(request['messages'])}\x1b[2J"), end(), DONE])

    server.replies[CHAT] = reply
    with TerminalProcess("run", "A", "--system", "s") as terminal:
        terminal.until(">>> ")
        for typed, shown in (("one", "got 2[2J"), ("fail", "busy (overloaded)"), ("two", "got 4[2J")):
            terminal.type(typed + "\n")
            terminal.until(shown)
            terminal.until(">>> ")
        terminal.type("/clear\n")
        terminal.until(">>> ")
        terminal.type("three\n")
        terminal.until("got 2[2J")
        terminal.until(">>> ")
        terminal.type("\x04")
        assert terminal.ends() == 0
    assert server.last()["messages"] == [{"role": "system", "content": "s"}, {"role": "user", "content": "three"}]


def test_images_and_parameters_are_sent(server: FakeServer, lemonbus: Ends, tmp_path: Path) -> None:
    server.replies[CHAT] = Reply(pieces=[chunk(content="yes"), end(), DONE])
    picture = tmp_path / "a b.png"
    picture.write_bytes(b"pixels")
    flags = ["--top-p", "0.5", "--top-k", "3", "--seed", "7", "--stop", "x", "--stop", "y", "--min-p", "0.1"]
    assert lemonbus("run", "A", "what is it?", "--image", str(picture), *flags) == (0, "yes\n", "")
    request = server.last()
    assert request["messages"] == [{"role": "user", "content": [{"type": "text", "text": "what is it?"}, PIXELS]}]
    sent = {name: value for name, value in request.items() if name in PARAMETERS}
    assert sent == {"top_p": 0.5, "top_k": 3, "seed": 7, "stop": ["x", "y"], "min_p": 0.1}
    assert (
        lemonbus("run", "A", "hi", "--top-p", "2")[0] == lemonbus("run", "A", "hi", "--image", "/missing.png")[0] == 2
    )
    # A script's prompt is text: it names files, and does not have them read.
    lemonbus("run", "A", f"read '{picture}'")
    assert server.last()["messages"] == [{"role": "user", "content": f"read '{picture}'"}]


@pytest.mark.parametrize(
    ("typed", "rest", "found"),
    [
        ("look at {0}/a.png now", "look at  now", ["a.png"]),
        ("'{0}/b c.JPG'", "", ["b c.JPG"]),
        ('{0}/b\\ c.JPG and "{0}/a.png" differ', "and  differ", ["b c.JPG", "a.png"]),
        ("~/a.png?", "~/a.png?", []),
        ("~/a.png", "", ["a.png"]),
        ("{0}/missing.png and {0}/text.txt", "{0}/missing.png and {0}/text.txt", []),
        ("a.png isn't \"read", "a.png isn't \"read", []),
    ],
)  # fmt: skip
def test_paths_of_images_are_taken_out_of_a_prompt(typed: str, rest: str, found: list[str], tmp_path: Path) -> None:
    for name in ("a.png", "b c.JPG", "text.txt"):
        (tmp_path / name).write_bytes(b"pixels")
    expected = (rest.format(tmp_path), [tmp_path / name for name in found])
    assert without_images(typed.format(tmp_path)) == expected


def seen(request: Any) -> Reply:
    """Answer with how many messages there are, and the last one."""
    text = f"got {len(request['messages'])} {json.dumps(request['messages'][-1]['content'])[-60:]}"
    return Reply(pieces=[chunk(content=text), end(), DONE])


def test_pasted_lines_and_marked_lines_are_one_message_each_and_are_remembered(
    server: FakeServer, tmp_path: Path
) -> None:
    server.replies[CHAT] = seen
    with TerminalProcess("run", "A") as terminal:
        terminal.until("\x1b[?2004h>>> ")  # the terminal is told to mark what is pasted
        terminal.type("\x1b[200~one\ntwo\x1b[201~\n")
        terminal.until(r'got 1 "one\ntwo"')
        terminal.until(">>> ")
        for line, prompt in (('"""three', "... "), ("", "... "), ('four"""', r'got 3 "three\n\nfour"')):
            terminal.type(line + "\n")
            terminal.until(prompt)
        terminal.until(">>> ")
        terminal.type("\x04")
        assert terminal.ends() == 0
    history = tmp_path / "state" / "lemonbus" / "run_history.jsonl"
    assert [json.loads(line) for line in history.read_text().splitlines()] == ["one\ntwo", "three\n\nfour"]
    assert stat.S_IMODE(history.stat().st_mode) == 0o600
    with history.open("a") as file:
        file.write('"cut')
    with TerminalProcess("run", "A") as terminal:
        terminal.until(">>> ")
        terminal.type("\x1b[A\x1b[A\n")  # twice the key for upwards
        terminal.until(r'got 1 "one\ntwo"')
        terminal.until(">>> ")
        terminal.type("/bye\n")
        assert terminal.ends() == 0


def test_ctrl_c_stops_an_answer_and_not_the_conversation(server: FakeServer) -> None:
    stopped = threading.Event()

    def endless() -> Iterator[str]:
        yield chunk(content="so far")
        stopped.wait(60)

    server.replies[CHAT] = Reply(pieces=endless())
    with TerminalProcess("run", "A") as terminal:
        terminal.until(">>> ")
        terminal.type("begin\n")
        terminal.until("so far")
        terminal.type("\x03")
        terminal.until("(Stopped.)")
        stopped.set()
        server.replies[CHAT] = seen
        terminal.until(">>> ")
        terminal.type("rubbish\x03")
        terminal.until("(Ctrl-D or /bye ends.)")
        terminal.until(">>> ")
        terminal.type("next\n")
        terminal.until('got 3 "next"')
        terminal.until(">>> ")
        terminal.type("\x04")
        assert terminal.ends() == 0
    assert [message["content"] for message in server.last()["messages"]] == ["begin", "so far", "next"]


def test_a_conversation_is_set_shown_saved_and_loaded(server: FakeServer, tmp_path: Path) -> None:
    server.replies[CHAT] = seen
    picture = tmp_path / "a.png"
    picture.write_bytes(b"pixels")
    chats = tmp_path / "state" / "lemonbus" / "chats"
    steps = [
        ("/set system Be brief.", ">>> "),
        ("/set parameter temperature 0.2", ">>> "),
        ("/set top-k 5", ">>> "),
        ("/set top_k", ">>> "),
        ("/set stop END", ">>> "),
        ("/set temperature hot", "temperature: 'hot' is not a valid float"),
        ("/set heat 1", "there is no parameter 'heat'; there are max_tokens, temperature"),
        ("/what", "there is no command /what; /help shows them"),
        (f"{picture} is what?", "(With the image a.png.)"),
        ("/show", "temperature     0.2"),
        ("/save", "under which name?"),
        (f"/save {tmp_path}/out", "out)"),
        ("/save first", "first.json)"),
        ("/clear", ">>> "),
        ("/set system", ">>> "),
        ("/set temperature", ">>> "),
        ("alone", 'got 1 "alone"'),
        ("/load missing", "missing.json: No such file or directory"),
        ("/load first", "(A chat of 2 messages with A.)"),
        ("again", 'got 4 "again"'),
        ("/help", "/set system TEXT"),
    ]
    with TerminalProcess("run", "A") as terminal:
        terminal.until(">>> ")
        for typed, shown in steps:
            terminal.type(typed + "\n")
            terminal.until(shown)
            if shown != ">>> ":
                terminal.until(">>> ")
        terminal.type("/bye\n")
        assert terminal.ends() == 0
    request = server.last()
    assert (request["temperature"], request["stop"], request.get("top_k")) == (0.2, ["END"], None)
    assert request["messages"][:2] == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": [{"type": "text", "text": "is what?"}, PIXELS]},
    ]
    saved = json.loads((chats / "first.json").read_text())
    assert (saved["version"], saved["model"], saved["system"], len(saved["messages"])) == (1, "A", "Be brief.", 2)
    assert stat.S_IMODE((chats / "first.json").stat().st_mode) == 0o600
    assert [each.name for each in chats.iterdir()] == ["first.json"]
    assert json.loads((tmp_path / "out").read_text()) == saved


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("{", "is not a saved chat"),
        ('{"model": "A", "messages": [{"role": "system", "content": ""}]}', "is not a saved chat"),
        ('{"model": "A", "parameters": {"messages": []}}', "parameters that this release does not know: messages"),
    ],
)
def test_a_wrong_file_changes_nothing(content: str, expected: str, tmp_path: Path) -> None:
    chat = ChatSession(ApiClient("http://127.0.0.1:1"), "B", {}, "s")
    (tmp_path / "bad.json").write_text(content)
    with pytest.raises(CommandError, match=expected):
        chat.load(str(tmp_path / "bad.json"))
    with pytest.raises(CommandError, match="cannot be the name of a chat"):
        chat.save(".hidden")
    assert (chat.model, chat.system, chat.messages) == ("B", "s", [])
