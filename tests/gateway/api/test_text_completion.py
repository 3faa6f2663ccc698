"""Log probabilities of text completions: from llama-server's single list to OpenAI's four lists."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gateway.api.openai.text_completion import TextLogprobs, TextStreamWriter, text_completion


def token(text: str, logprob: float, *top: tuple[str, float], data: bytes | None = None) -> dict[str, Any]:
    return {
        "id": 1,
        "token": text,
        "bytes": list(text.encode() if data is None else data),
        "logprob": logprob,
        "top_logprobs": [{"token": other, "bytes": list(other.encode()), "logprob": value} for other, value in top],
    }


A, B = token(" ä", -0.5, (" ä", -0.5), ("x", -2.0)), token("b", -0.25)


def test_four_lists_of_one_length() -> None:
    assert TextLogprobs().convert([A, B]) == {
        "tokens": [" ä", "b"],
        "token_logprobs": [-0.5, -0.25],
        "top_logprobs": [{" ä": -0.5, "x": -2.0}, {}],
        "text_offset": [0, 2],
    }


def test_pieces_go_on_where_the_last_one_ended() -> None:
    logprobs = TextLogprobs(3)
    assert logprobs.convert([A])["text_offset"] == [3]
    assert logprobs.convert([B, B])["text_offset"] == [5, 6]


def test_parts_of_a_character_are_written_as_bytes() -> None:
    parts = [token("\ufffd", -1.0, data=b"\xc3"), token("\ufffd", -1.0, data=b"\xa4"), B]
    found = TextLogprobs().convert(parts)
    assert found["tokens"] == ["bytes:\\xc3", "bytes:\\xa4", "b"]
    assert found["text_offset"] == [0, 0, 1]


def test_an_engine_without_bytes() -> None:
    assert TextLogprobs().convert([{"token": "ab", "logprob": -1}, B])["text_offset"] == [0, 2]


def test_a_stream_keeps_an_offset_for_each_choice() -> None:
    writer = TextStreamWriter()

    def offsets(index: int) -> list[int]:
        choice = {"text": "b", "index": index, "logprobs": {"content": [B]}}
        event = json.dumps({"choices": [choice], "id": "x"}, separators=(",", ":")).encode()
        written = writer.events(b"data: " + event + b"\n\n")
        found: list[int] = json.loads(written.removeprefix(b"data: "))["choices"][0]["logprobs"]["text_offset"]
        return found

    assert [offsets(index) for index in (0, 0, 1, 0)] == [[0], [1], [0], [2]]


@pytest.mark.parametrize("text", ['"id":"chatcmpl-', "a"])
def test_ids_of_completions_begin_with_cmpl(text: str) -> None:
    body = {"choices": [{"text": text, "index": 0, "logprobs": None}], "id": "chatcmpl-1"}
    data = json.dumps(body, separators=(",", ":")).encode()
    whole = json.loads(text_completion(data, None, 1))
    assert (whole["id"], whole["text"], whole["choices"][0]["text"]) == ("cmpl-1", text, text)
    event = TextStreamWriter().events(b"data: " + data + b"\n\n")
    assert json.loads(event.removeprefix(b"data: ")) == {**body, "id": "cmpl-1"}
