"""Chunks as events, byte by byte: ``golden/streams`` has a file with the chunks and one with the events of each answer."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from gateway.api.responses.output.event_stream import ResponseEventWriter
from protocol.failures import Code, Failure, LemonbusError
from tests.gateway.api.responses.deterministic import GOLDEN, NOW, builder

CASES: dict[str, dict[str, Any]] = {
    "text": {"store": False},
    "reasoning_and_text": {},
    "parallel_calls": {"tools": [{"type": "function", "name": "get_weather"}]},
    "coding_agent": {
        "tools": [
            {
                "type": "namespace",
                "name": "agents",
                "description": "Tools for agents.",
                "tools": [{"type": "function", "name": "spawn_agent"}],
            },
            {"type": "custom", "name": "apply_patch"},
            {"type": "web_search"},
        ]
    },
    "cut_off": {"max_output_tokens": 2},
    "no_output": {},
    "log_probabilities": {"include": ["message.output_text.logprobs"], "top_logprobs": 1},
}
"""File → fields of the request."""
DIED = Failure(Code.BACKEND_DIED, "the engine died", model="m", tokens_sent=1)


def chunks_of(name: str) -> bytes:
    return (GOLDEN / "streams" / f"{name}.chunks.sse").read_bytes()


def writer_for(**fields: Any) -> ResponseEventWriter:
    return ResponseEventWriter(builder(stream=True, **fields), lambda: NOW + 1)


def events_in(written: bytes) -> list[Any]:
    """Return the events; each one's name and type are the same."""
    events = []
    for block in written.decode().split("\n\n")[:-1]:
        name, data = block.split("\n")
        event = msgspec.json.decode(data.removeprefix("data: "))
        assert name == f"event: {event['type']}"
        events.append(event)
    return events


@pytest.mark.parametrize("name", CASES)
def test_events_are_exact(name: str) -> None:
    writer = writer_for(**CASES[name])
    written = writer.events(chunks_of(name)) + writer.end()
    assert written.decode() == (GOLDEN / "streams" / f"{name}.events.sse").read_text()


@pytest.mark.parametrize("name", CASES)
def test_how_chunks_are_split_makes_no_difference(name: str) -> None:
    whole, split = writer_for(**CASES[name]), writer_for(**CASES[name])
    at_once = whole.events(chunks_of(name)) + whole.end()
    pieces = [block + b"\n\n" for block in chunks_of(name).split(b"\n\n")[:-1]]
    assert b"".join(map(split.events, pieces)) + split.end() == at_once


@pytest.mark.parametrize("name", CASES)
def test_events_add_up_to_the_response(name: str) -> None:
    writer = writer_for(**CASES[name])
    events = events_in(writer.events(chunks_of(name)) + writer.end())
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    *_, last = events
    done = [event["item"] for event in events if event["type"] == "response.output_item.done"]
    assert last["response"]["output"] == done
    for event in events:
        if event["type"].endswith((".output_text.done", ".reasoning_text.done")):
            kind = event["type"].replace(".done", ".delta")
            deltas = [each["delta"] for each in events if each["type"] == kind and each["item_id"] == event["item_id"]]
            assert "".join(deltas) == event["text"]


def test_a_broken_stream_fails_and_keeps_what_was_said() -> None:
    writer = writer_for()
    first = chunks_of("text").split(b"\n\n")
    written = writer.events(b"\n\n".join(first[:2]) + b"\n\n") + writer.error(DIED, "req-1")
    *_, last = events_in(written)
    assert last["type"] == "response.failed"
    response = last["response"]
    assert (response["status"], response["usage"]) == ("failed", None)
    assert response["error"]["code"] == "backend_died"
    assert (response["error"]["request_id"], response["error"]["tokens_sent"]) == ("req-1", 1)
    (item,) = response["output"]
    assert (item["status"], item["content"][0]["text"]) == ("incomplete", "Once")


def test_a_stream_that_breaks_before_its_first_event_begins_all_the_same() -> None:
    events = events_in(writer_for().error(DIED, "req-1"))
    assert [event["type"] for event in events] == ["response.created", "response.in_progress", "response.failed"]


def test_a_client_that_waits_knows_the_id() -> None:
    writer = writer_for()
    created, _ = events_in(writer.ping())
    assert created["response"]["id"] == "resp_1"
    assert writer.ping().startswith(b":")
    assert events_in(writer.end())[0]["type"] == "response.output_item.added"


def test_pieces_of_a_call_that_has_ended_are_an_error() -> None:
    chunk = b'data: {"choices":[{"delta":{"tool_calls":[{"index":%d,"function":{"name":"f","arguments":"{"}}]}}]}\n\n'
    with pytest.raises(LemonbusError) as problem:
        writer_for().events(chunk % 0 + chunk % 1 + chunk % 0)
    assert problem.value.failure.code is Code.BACKEND_ERROR


def test_a_response_that_could_not_be_stored_says_so() -> None:
    made = builder()
    writer = ResponseEventWriter(made)
    writer.events(chunks_of("text"))
    assert writer.response()["store"]
    made.stored = False
    assert not events_in(writer.end())[-1]["response"]["store"]
