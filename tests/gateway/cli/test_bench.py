"""``lemonbus bench``: what is sent, what is computed, and what is said of the figures. No time is judged."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from gateway.api.openai.models import model_object
from gateway.cli.benchmark.measurement import MeasuredRequest, StreamsAtOnce, measure_streams
from gateway.cli.benchmark.prompts import measured_length, prompt
from gateway.cli.benchmark.report import MeasuredRange, level_notes, level_report
from tests.gateway.cli.canned_responses import ALL, CHAT, DONE, catalogue, chunk, health, model
from tests.gateway.cli.conftest import Ends
from tests.gateway.cli.terminal_process import TerminalProcess
from tests.gateway.fake_server import FakeServer, Reply

LOAD = ("POST", "/v1/load")
CONFIGURATION = ("GET", "/internal/configuration?model=A")
SETTINGS = ("GET", "/internal/settings")
REFUSED = {"error": {"message": "no slot", "code": "overloaded"}}


def answer(request: Any) -> Reply:
    """Answer with two tokens. Each word of a prompt is two tokens, and the template has ten."""
    words = len(request["messages"][0]["content"].split())
    usage = {"prompt_tokens": 10 + 2 * words, "completion_tokens": 2, "total_tokens": 0}
    end = f"data: {json.dumps({'choices': [], 'usage': usage})}\n\n"
    return Reply(pieces=[chunk(role="assistant"), chunk(reasoning_content="a"), chunk(content="b"), end, DONE])


@pytest.fixture
def measured(server: FakeServer) -> FakeServer:
    """A server with the model A, which is not loaded."""
    entry = model("A", downloaded=True)
    server.replies[ALL] = catalogue(entry)
    server.replies["GET", "/v1/models/A"] = Reply(msgspec.to_builtins(model_object(entry, "A", whole=True)))
    server.replies["GET", "/v1/health"] = health()
    loaded = {"status": "success", "message": "", "model_name": "A", "model": "A", "checkpoint": "", "recipe": ""}
    server.replies[LOAD] = Reply({**loaded, "context": 4096})
    server.replies[CONFIGURATION] = Reply({"error": {"message": "not this key", "code": "forbidden"}}, 403)
    server.replies[CHAT] = answer
    return server


def settings_with(queue: int) -> Reply:
    return Reply({"release": "1", "settings": {"queue_requests": {"value": queue, "origin": "default"}}})


def chats(server: FakeServer) -> list[Any]:
    return [body for method, path, body, _ in server.asked if (method, path) == CHAT]


def test_each_number_of_streams_is_measured_with_new_prompts(measured: FakeServer, lemonbus: Ends) -> None:
    words = ["bench", "A", "--streams", "1,3", "--requests", "2", "--prompt-tokens", "210", "--max-tokens", "9"]
    code, out, _ = lemonbus(*words, "--json")
    assert code == 0
    report = json.loads(out)
    assert (report["model"], report["recipe"], report["context"], report["interrupted"]) == (
        "A",
        "llamacpp",
        4096,
        False,
    )
    assert report["load_seconds"] is not None
    assert report["first_request"]["prompt_tokens"] == 10 + 2 * 16
    one, three = report["levels"]
    assert [(each["streams"], each["requests"], each["output_tokens"]) for each in (one, three)] == [
        (1, 2, 4),
        (3, 3, 6),
    ]
    assert [each["prompt_tokens"] for each in (one, three)] == [210, 210]
    for level in (one, three):
        assert level["first_token_s"]["least"] <= level["first_token_s"]["median"] <= level["first_token_s"]["most"]
        assert level["tokens_per_second"] > 0
        assert "failed" not in level
    requests = chats(measured)
    assert len(requests) == 2 + 2 + 3
    contents = [request["messages"][0]["content"] for request in requests]
    assert [len(content.split()) for content in contents] == [16, 64, *[100] * 5]
    assert len({content[:40] for content in contents}) == len(contents)
    sent = {(each["model"], each["max_tokens"], each["ignore_eos"], each["stream"]) for each in requests}
    assert sent == {("A", 9, True, True)}  # the first two are no longer than that either
    assert measured.asked.index(next(each for each in measured.asked if each[1] == LOAD[1])) < measured.asked.index(
        next(each for each in measured.asked if each[1] == CHAT[1])
    )


def test_the_table_has_a_row_for_each_number_of_streams(measured: FakeServer, lemonbus: Ends) -> None:
    code, out, err = lemonbus("bench", "A", "--streams", "1,2", "--requests", "1", "--prompt-tokens", "20")
    assert code == 0
    assert re.search(r"^A at http://127\.0\.0\.1:\d+: llamacpp, 4096 tokens of context$", out, re.MULTILINE)
    assert re.search(r"^Load: [\d.]+ s$", out, re.MULTILINE)
    assert re.search(r"^First request: [\d.]+ s to the first token, with a prompt of 42 tokens$", out, re.MULTILINE)
    rows = [line.split() for line in out.splitlines() if re.match(r"\d", line)]
    assert [row[:3] for row in rows] == [["1", "1", "0"], ["2", "2", "0"]]
    assert "Loading A." in err


def test_failed_requests_are_counted_and_end_with_1(measured: FakeServer, lemonbus: Ends) -> None:
    measured.replies[CHAT] = lambda request: (
        answer(request) if len(chats(measured)) in (1, 2, 4) else Reply(REFUSED, 503)
    )
    code, out, _ = lemonbus("bench", "A", "--streams", "1", "--requests", "3", "--json")
    (level,) = json.loads(out)["levels"]
    assert (code, level["requests"], level["failed"]) == (1, 3, 2)
    assert level["errors"] == {"no slot (overloaded)": 2}
    assert level["output_tokens"] == 2
    assert "1 stream: 2 of 3 requests failed: no slot (overloaded)" in json.loads(out)["notes"]


def test_the_first_request_must_succeed(measured: FakeServer, lemonbus: Ends) -> None:
    measured.replies[CHAT] = Reply(pieces=[chunk(content="b")])
    code, out, err = lemonbus("bench", "A")
    assert (code, out) == (1, "")
    assert "the stream ended without its end mark" in err
    assert len(chats(measured)) == 1


def test_more_streams_than_the_queue_takes_are_not_measured(measured: FakeServer, lemonbus: Ends) -> None:
    shown = {"id": "A", "names": [], "recipe": "llamacpp", "type": "llm", "downloaded": True, "origin": "files"}
    lists: Any = {"options": [], "settings": [], "groups": [], "loaded_options": {}, "known_options": [], "files": []}
    measured.replies[CONFIGURATION] = Reply({**shown, **lists, "state": "", "checkpoint": ""})
    measured.replies[SETTINGS] = settings_with(3)
    code, out, _ = lemonbus("bench", "A", "--streams", "3,4", "--requests", "1", "--json")
    first, second = json.loads(out)["levels"]
    assert (code, first["requests"], first.get("skipped")) == (1, 3, None)
    assert "lets 3 requests wait" in second["skipped"]
    assert len(chats(measured)) == 2 + 3


def test_wrong_numbers_are_refused_before_anything_is_sent(measured: FakeServer, lemonbus: Ends) -> None:
    for streams in ("0", "1,x", "", "257"):
        assert lemonbus("bench", "A", "--streams", streams)[0] == 2
    assert measured.asked == []
    code, _, err = lemonbus("bench", "A", "--prompt-tokens", "4000", "--max-tokens", "97")
    assert (code, "do not fit into the context of 4096" in " ".join(err.split())) == (2, True)
    assert chats(measured) == []


def test_ctrl_c_shows_what_was_measured(measured: FakeServer) -> None:
    stopped = threading.Event()

    def endless() -> Iterator[str]:
        yield chunk(content="so far")
        stopped.wait(60)

    measured.replies[CHAT] = lambda request: answer(request) if len(chats(measured)) <= 3 else Reply(pieces=endless())
    with TerminalProcess("bench", "A", "--streams", "1,2", "--requests", "1") as terminal:
        terminal.until("2 streams: 2 requests.")
        terminal.type("\x03")
        shown = re.sub(r"\x1b\[\d*m", "", terminal.until("Interrupted: all requests were ended."))
        assert terminal.ends() == 130
    stopped.set()
    rows = [line.split()[:3] for line in shown.splitlines() if re.match(r"\d+ +\d", line)]
    assert rows == [["1", "1", "0"]]


def test_the_figures_of_a_level() -> None:
    quick, slow = MeasuredRequest("", 1.0, 3.0, 100, 0, 5), MeasuredRequest("", 2.0, 4.0, 100, 60, 9)
    level = level_report(StreamsAtOnce(2, [quick, slow, MeasuredRequest("gone"), MeasuredRequest("gone")], 4.0, 0.9))
    assert (level.requests, level.failed, level.errors, level.output_tokens) == (4, 2, {"gone": 2}, 14)
    assert level.first_token_s == MeasuredRange(1.5, 1.0, 2.0)
    assert level.tokens_per_second_each == MeasuredRange(3.0, 2.0, 4.0)
    assert level.tokens_per_second == 3.5
    assert level.prompt_tokens_per_second == MeasuredRange(60.0, 20.0, 100.0)
    notes = " ".join(level_notes(level, 1))
    for text in (
        "has 1 slot,",
        "up to 1 requests waited",
        "2 of 4 requests failed: gone",
        "60 prompt tokens",
        "90% of a",
    ):
        assert text in notes
    assert level_notes(level_report(StreamsAtOnce(1, [quick], 4.0, 0.1)), 1) == []
    none = level_report(StreamsAtOnce(1, [MeasuredRequest("gone")], 1.0, 0.0))
    assert (none.first_token_s, none.tokens_per_second) == (None, 0.0)


def test_threads_share_the_requests_and_survive_what_they_do_not_know() -> None:
    together = threading.Barrier(3)

    def send() -> MeasuredRequest:
        together.wait(30)  # only if three are sent at once does it go on
        raise ZeroDivisionError

    done = measure_streams(3, 6, send)
    assert [each.error for each in done.requests] == ["ZeroDivisionError()"] * 6


def test_the_length_of_prompts() -> None:
    length = measured_length((16, 42), (64, 138))
    assert (length.fixed, length.each, length.words(210), length.words(1)) == (10, 2, 100, 1)
    assert len(prompt(100).split()) == 100
