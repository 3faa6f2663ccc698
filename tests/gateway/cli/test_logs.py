"""``lemonbus logs``: the snapshot, and a follower whose connection breaks."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
import simple_websocket

from gateway.cli.api_client import KEY_HINT
from tests.gateway.cli.conftest import Ends
from tests.gateway.cli.terminal_process import LAUNCH
from tests.gateway.fake_server import FakeServer, Reply


def entry(seq: int, severity: str = "Info") -> dict[str, Any]:
    return {"seq": seq, "timestamp": "t", "severity": severity, "tag": "gateway", "line": f"line {seq}"}


def snapshot(*numbers: int, boot: str = "b1") -> str:
    return json.dumps({"type": "logs.snapshot", "boot": boot, "entries": [entry(number) for number in numbers]})


def test_logs_prints_the_snapshot(server: FakeServer, lemonbus: Ends, monkeypatch: pytest.MonkeyPatch) -> None:
    received: list[Any] = []

    def talk(peer: simple_websocket.Server) -> None:
        received.append(json.loads(peer.receive(timeout=10)))
        peer.send(snapshot(1, 2, 3))
        peer.receive(timeout=10)

    server.talk = talk
    monkeypatch.setenv("LEMONBUS_API_KEY", "k")
    words = ["--model", "A", "--request", "r", "--level", "error", "--node", "gpu2"]
    assert lemonbus("logs", *words) == (0, "line 1\nline 2\nline 3\n", "")
    filters = {"model": "A", "request_id": "r", "level": "error", "node": "gpu2"}
    assert received == [{"type": "logs.subscribe", "after_seq": None, **filters}]
    assert server.asked[-1][1] == "/logs/stream"
    assert server.asked[-1][3]["Authorization"] == "Bearer k"
    assert lemonbus("logs", "-n", "1")[1] == "line 3\n"
    assert lemonbus("logs", "-n", "0")[1] == ""
    assert [json.loads(line) for line in lemonbus("logs", "--json")[1].splitlines()] == [entry(1), entry(2), entry(3)]


@pytest.mark.parametrize("form", [[], ["--json"]])
def test_logs_print_nothing_that_changes_how_lines_are_shown(
    server: FakeServer, lemonbus: Ends, form: list[str]
) -> None:
    wrong = {**entry(1), "line": "a\u202eb\x1b[2Jc", "model": "a\u202eb"}

    def talk(peer: simple_websocket.Server) -> None:
        peer.receive(timeout=10)
        peer.send(json.dumps({"type": "logs.snapshot", "boot": "b1", "entries": [wrong]}))
        peer.receive(timeout=10)

    server.talk = talk
    code, out, _ = lemonbus("logs", *form)
    assert code == 0
    assert out.removesuffix("\n").isprintable()
    assert not form or json.loads(out) == wrong, "a program reads what was logged"


def at(seq: int, time: str, line: str = "") -> dict[str, Any]:
    return {**entry(seq), "timestamp": f"2026-11-26 {time}", "line": line or f"line {seq}"}


def retained(
    *entries: dict[str, Any], since: str = "2026-11-26 10:00:00.000"
) -> Callable[[simple_websocket.Server], None]:
    def talk(peer: simple_websocket.Server) -> None:
        peer.receive(timeout=10)
        peer.send(json.dumps({"type": "logs.snapshot", "boot": "b1", "retained_since": since, "entries": entries}))
        peer.receive(timeout=10)

    return talk


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        ("--since 2026-11-26T10:30Z", "23"),
        ("--since 2026-11-26T10:30Z --until 2026-11-26T11:00Z", "2"),
        ("--since 2026-11-26T10:00Z --until 2026-11-26T10:00:00Z", "1"),
        ("--grep model", "12"),
        ("--grep MODEL", "2"),
        ("-g ^a.*d$", "1"),
        ("--grep model -n 1", "2"),
        ("--grep model --since 2026-11-26T10:30Z --json", "2"),
    ],
)
def test_logs_shows_the_lines_of_a_time_that_contain_something(
    words: str, shown: str, server: FakeServer, lemonbus: Ends
) -> None:
    lines = at(1, "10:00:00.000", "a model loaded"), at(2, "10:30:00.500", "b MODEL"), at(3, "11:30:00.000", "c")
    server.talk = retained(*lines)
    code, out, err = lemonbus("logs", *words.split())
    assert (code, err) == (0, "")
    found = [json.loads(line)["seq"] for line in out.splitlines()] if "--json" in words else out.splitlines()
    wanted = [each for each in lines if str(each["seq"]) in shown]
    assert found == [each["seq" if "--json" in words else "line"] for each in wanted]


def test_logs_says_if_the_lines_begin_later_than_asked_for(server: FakeServer, lemonbus: Ends) -> None:
    server.talk = retained(at(1, "10:00:00.000"))
    code, out, err = lemonbus("logs", "--since", "2026-11-26T09:59Z")
    assert (code, out) == (0, "line 1\n")
    assert err == (
        "lemonbus: the retained lines begin at 2026-11-26 10:00:00Z; older lines are only in its stderr;"
        " for a systemd unit: journalctl -u lemonbus\n"
    )
    assert lemonbus("logs", "--since", "2026-11-26T10:00Z") == (0, "line 1\n", "")
    server.talk = retained(at(1, "10:00:00.000"), since="")
    assert lemonbus("logs", "--since", "2026-11-26T09:59Z") == (0, "line 1\n", ""), "a server that does not say"
    assert "no retained line matches" in lemonbus("logs", "--grep", "x")[2]


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ("--since soon", "'soon' is not a time such as 10m"),
        ("--grep (", "is not a regular expression: missing ), unterminated subpattern"),
        ("-f --until now", "--until ends the log: leave out --follow."),
    ],
)
def test_logs_refuses_what_it_cannot_compare(words: str, reason: str, lemonbus: Ends) -> None:
    code, out, err = lemonbus("logs", *words.split(), "--url", "http://127.0.0.1:1")
    assert (code, out) == (2, "")
    assert reason in " ".join(err.split())


def test_logs_follow_shows_only_new_lines_that_match(server: FakeServer, lemonbus: Ends) -> None:
    def talk(peer: simple_websocket.Server) -> None:
        peer.receive(timeout=10)
        peer.send(json.dumps({"type": "logs.snapshot", "boot": "b1", "entries": [at(1, "10:00:00.000", "one")]}))
        for number, line in ((2, "two"), (3, "only one")):
            peer.send(json.dumps({"type": "logs.entry", "entry": at(number, "10:00:01.000", line)}))
        error = {"message": "the API key ci has been revoked", "code": "unauthorized"}
        peer.send(json.dumps({"type": "error", "error": error}))
        peer.receive(timeout=10)

    server.talk = talk
    code, out, _ = lemonbus("logs", "-f", "--grep", "one")
    assert (code, out) == (4, "one\nonly one\n")


def test_logs_says_that_nothing_matches(server: FakeServer, lemonbus: Ends) -> None:
    def talk(peer: simple_websocket.Server) -> None:
        peer.receive(timeout=10)
        peer.send(snapshot())
        peer.receive(timeout=10)

    server.talk = talk
    code, out, err = lemonbus("logs", "--request", "no-such")
    assert (code, out) == (0, "")
    assert err.startswith("lemonbus: no retained line matches. The server retains the lines since")
    assert "registered names" in lemonbus("logs", "--model", "no-such")[2]
    assert lemonbus("logs") == (0, "", "")


def test_logs_refuses_a_process_that_does_not_exist(lemonbus: Ends) -> None:
    code, _, err = lemonbus("logs", "--process", "wroker")
    assert code == 2
    assert "'supervisor', 'gateway', 'worker', 'engine', 'job'" in err


def test_logs_refused(server: FakeServer, lemonbus: Ends) -> None:
    def talk(peer: simple_websocket.Server) -> None:
        peer.receive(timeout=10)
        peer.send(json.dumps({"type": "error", "message": "no such level"}))
        peer.receive(timeout=10)

    server.talk = talk
    assert lemonbus("logs") == (1, "", "lemonbus: no such level\n")


def test_logs_follow_ends_when_the_key_is_revoked(server: FakeServer, lemonbus: Ends) -> None:
    def talk(peer: simple_websocket.Server) -> None:
        peer.receive(timeout=10)
        peer.send(snapshot(1))
        error = {"message": "the API key ci has been revoked", "code": "unauthorized"}
        peer.send(json.dumps({"type": "error", "message": error["message"], "error": error}))
        peer.receive(timeout=10)

    server.talk = talk
    code, out, err = lemonbus("logs", "-f")
    assert (code, out.splitlines()[0]) == (4, "line 1")
    assert "the API key ci has been revoked" in err


@pytest.mark.parametrize(
    ("status", "code", "message", "exit_code"),
    [
        (401, "unauthorized", "this API key is not valid", 4),
        (403, "forbidden", "this Host may not read the logs", 4),
        (429, "rate_limit_exceeded", "8 readers already follow the log", 1),
        (503, "overloaded", "64 readers already follow the log", 3),
    ],
)
@pytest.mark.parametrize("command", [("logs",), ("logs", "-f")])
def test_logs_prints_the_reason_of_a_refusal(
    server: FakeServer, lemonbus: Ends, command: tuple[str, ...], status: int, code: str, message: str, exit_code: int
) -> None:
    error = {"message": message, "code": code, "request_id": "req-1"}
    server.replies["GET", "/logs/stream"] = Reply({"status": "error", "message": message, "error": error}, status)
    hint = KEY_HINT if status == 401 else ""
    assert lemonbus(*command) == (exit_code, "", f"lemonbus: {message} ({code}, req-1){hint}\n")


def test_logs_follow_resumes_where_it_was_and_shows_gaps(server: FakeServer) -> None:
    """Three connections: the first breaks, the second resumes until the server says that it stops, and the third is to the restarted server."""
    connections: list[Callable[[simple_websocket.Server], object]] = [
        lambda peer: peer.send(snapshot(1, 2)),  # the snapshot that is printed first
        lambda peer: (
            peer.send(snapshot(2)),
            peer.send(json.dumps({"type": "logs.entry", "entry": entry(3)})),
        ),
        lambda peer: (
            peer.send(snapshot(3, 4)),
            peer.send(json.dumps({"type": "logs.entry", "entry": {**entry(5), "dropped": 7}})),
            peer.send(
                json.dumps({"type": "error", "error": {"message": "the server is stopping", "code": "draining"}})
            ),
        ),
        lambda peer: (peer.send(snapshot(1, boot="b2")), peer.receive(timeout=20)),
    ]
    subscriptions: list[Any] = []

    def talk(peer: simple_websocket.Server) -> None:
        subscriptions.append(json.loads(peer.receive(timeout=10)))
        connections[len(subscriptions) - 1](peer)

    server.talk = talk
    with subprocess.Popen(
        [sys.executable, LAUNCH, "logs", "-f"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as follower:
        assert follower.stdout is not None
        try:
            lines = [follower.stdout.readline().rstrip() for _ in range(9)]
        finally:
            follower.kill()
    lost = "lemonbus: the connection to the server is lost; waiting for the server"
    assert [line for line in lines if line.startswith("line")] == [f"line {number}" for number in (1, 2, 3, 4, 5, 1)]
    assert lines.count(lost) == 2
    assert lines.count("lemonbus: 7 lines were lost before the next one") == 1
    assert [(each["after_seq"], each.get("boot")) for each in subscriptions] == [
        (None, None),
        (2, "b1"),
        (3, "b1"),
        (5, "b1"),
    ]
