"""Golden files match what OpenAI and Anthropic publish: their packages' types judge each request, event and answer."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from pydantic import ValidationError

from gateway.api.anthropic import errors, message_answer
from gateway.requests.answer_stream import WholeAnswer
from protocol.failures import Code, Failure
from protocol.messages.events import Outcome
from tests.gateway.api.published_types import check_answer, check_request

HERE = Path(__file__).parent
RESPONSES, ANTHROPIC = HERE / "responses" / "golden", HERE / "anthropic" / "golden"
RESPONSE_STREAMS = sorted((RESPONSES / "streams").glob("*.events.sse"))
ANTHROPIC_STREAMS = sorted((ANTHROPIC / "streams").glob("*.sse"))
BODIES = sorted((ANTHROPIC / "requests").glob("*.body.json"))


def stem(path: Path) -> str:
    return path.stem


def events_of(path: Path) -> Iterator[str]:
    """Yield the JSON of each event."""
    for block in path.read_text().split("\n\n")[:-1]:
        yield block.partition("data: ")[2]


def event_type(path: Path) -> Any:
    """Return the published type of the events in a file."""
    if path.is_relative_to(RESPONSES):
        from openai.types.responses import ResponseStreamEvent  # noqa: PLC0415 - takes a second in every test process

        return ResponseStreamEvent
    from anthropic.types import RawMessageStreamEvent  # noqa: PLC0415 - see above

    return RawMessageStreamEvent


@pytest.mark.parametrize("path", [*RESPONSE_STREAMS, *ANTHROPIC_STREAMS], ids=stem)
def test_every_event_of_a_stream(path: Path) -> None:
    for event in events_of(path):
        check_answer(event_type(path), event)


@pytest.mark.parametrize("path", [RESPONSES / "streams/text.events.sse", ANTHROPIC / "streams/text.sse"], ids=stem)
def test_a_field_that_is_missing_or_has_another_type_is_noticed(path: Path) -> None:
    """The check itself: without ``sequence_number`` or ``index``, or with a text in its place, events are refused."""
    published = event_type(path)
    for event in map(json.loads, events_of(path)):
        for field in {"sequence_number", "index"} & set(event):
            with pytest.raises(ValidationError, match=field):
                check_answer(published, json.dumps({key: value for key, value in event.items() if key != field}))
            with pytest.raises(ValidationError, match=field):
                check_answer(published, json.dumps({**event, field: "1"}))
        with pytest.raises(AssertionError, match="surplus"):
            check_answer(published, json.dumps({**event, "surplus": 1}))


@pytest.mark.parametrize("path", sorted((RESPONSES / "requests").glob("*.json")), ids=stem)
def test_a_request_of_responses_and_the_chat_that_it_becomes(path: Path) -> None:
    from openai.types.chat.completion_create_params import CompletionCreateParams  # noqa: PLC0415 - see above
    from openai.types.responses.response_create_params import ResponseCreateParams  # noqa: PLC0415 - see above

    golden = json.loads(path.read_text())
    check_request(ResponseCreateParams, golden["request"])
    check_request(CompletionCreateParams, {"model": "m", **golden["bus"]})


@pytest.mark.parametrize("path", BODIES, ids=stem)
def test_a_request_of_messages_and_the_chat_that_it_becomes(path: Path) -> None:
    from anthropic.types.message_create_params import MessageCreateParams  # noqa: PLC0415 - see above
    from openai.types.chat.completion_create_params import CompletionCreateParams  # noqa: PLC0415 - see above

    request = json.loads(path.with_name(path.name.replace(".body", "")).read_text())
    check_request(MessageCreateParams, {"model": "m", **request})
    check_request(CompletionCreateParams, {"model": "m", **json.loads(path.read_text())})


CALLS = [{"id": letter, "type": "function", "function": {"name": "f", "arguments": "{}"}} for letter in "ab"]


@pytest.mark.parametrize(
    ("message", "finish_reason"),
    [
        ({"content": "Hi"}, "stop"),
        ({"content": "Hi", "reasoning_content": "Hm"}, "length"),
        ({"content": None, "tool_calls": CALLS}, "tool_calls"),
    ],
)
def test_a_whole_message(message: dict[str, Any], finish_reason: str) -> None:
    from anthropic.types import Message  # noqa: PLC0415 - see above

    usage = {"prompt_tokens": 5, "completion_tokens": 4, "prompt_tokens_details": {"cached_tokens": 3}}
    body = {"model": "m", "choices": [{"finish_reason": finish_reason, "message": message}], "usage": usage}
    check_answer(Message, message_answer.message(WholeAnswer(msgspec.json.encode(body), "m", Outcome()), 100))


@pytest.mark.parametrize(
    "write", [errors.error_body, lambda *given: errors.error_event(*given).partition(b"data: ")[2]]
)
@pytest.mark.parametrize("code", Code)
def test_every_error_has_a_type_that_anthropic_documents(write: Callable[[Failure, str], bytes], code: Code) -> None:
    error = json.loads(write(Failure(code, "no"), "req-1"))
    assert set(error) == {"type", "error", "request_id"}
    assert error["type"] == "error"
    assert error["error"]["type"] in {
        "invalid_request_error",
        "authentication_error",
        "permission_error",
        "not_found_error",
        "conflict_error",
        "request_too_large",
        "rate_limit_error",
        "api_error",
        "timeout_error",
        "overloaded_error",
    }
