"""The ``response`` object: the request's fields, the output so far, the status, and the usage; also of a whole chat completion. Pure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import msgspec

from gateway.api.common.inference.whole_answers import CompletedChoice, read_completion
from gateway.api.responses.input.input_items import NewId
from gateway.api.responses.input.request import ResponseRequest
from gateway.api.responses.input.tools import client_tools, offered_tools
from gateway.api.responses.output.output_items import Event, OutputItems, Position
from gateway.requests.answer_stream import WholeAnswer
from gateway.server_clock import SERVER_CLOCK
from protocol.failures import Failure
from protocol.wire.openai_chunks import ChoiceDelta, MessageDelta, Usage

_INCOMPLETE: Final = {"length": "max_output_tokens", "content_filter": "content_filter"}
"""``finish_reason`` of a chat completion that was cut off → the reason in ``incomplete_details``."""


class ResponseBuilder:
    """One response, from beginning to end."""

    def __init__(self, request: ResponseRequest, new_id: NewId, now: float, model: str = "") -> None:
        """Begin at ``now`` (Unix seconds). ``model``: as the request names it."""
        self.id = new_id("resp")
        self.stored = request.wants_store
        """Whether it is stored; shown in the response to tell the client."""
        self.model = model
        self.usage: Usage | None = None
        self._request = request
        self._created_at = int(now)
        self._output = OutputItems(new_id, client_tools(request))
        self._finish_reason = ""

    def add(self, choice: ChoiceDelta) -> list[Event]:
        """Take a piece of the answer and return its events."""
        self._finish_reason = choice.finish_reason or self._finish_reason
        return self._output.add(choice)

    def add_text(self, text: str) -> Position | None:
        """Take a piece of text; see :meth:`OutputItems.add_text`."""
        return self._output.add_text(text)

    @property
    def incomplete_reason(self) -> str:
        """Why the answer was cut off; empty if it was not."""
        return _INCOMPLETE.get(self._finish_reason, "")

    def end(self) -> list[Event]:
        """End the output of a generation that really ended, and return the events of its last item."""
        return self._output.end("incomplete" if self.incomplete_reason else "completed")

    def ended(self, now: float) -> dict[str, Any]:
        """Return the response of a generation that ended, after :meth:`end`."""
        reason = self.incomplete_reason
        return {
            **self.response("incomplete" if reason else "completed"),
            "completed_at": None if reason else int(now),
            "incomplete_details": {"reason": reason} if reason else None,
            "usage": self._usage(),
        }

    def failed(self, failure: Failure, label: str) -> dict[str, Any]:
        """Return the response of a generation that broke. ``label`` is the request id."""
        return {**self.response("failed"), "error": response_error(failure, label)}

    def response(self, status: str) -> dict[str, Any]:
        """Return the response so far."""
        request = self._request
        text, reasoning = request.text, request.reasoning
        return {
            "id": self.id,
            "object": "response",
            "created_at": self._created_at,
            "status": status,
            "background": bool(request.background),
            "completed_at": None,
            "error": None,
            "incomplete_details": None,
            "instructions": request.instructions,
            "max_output_tokens": request.max_output_tokens,
            "max_tool_calls": request.max_tool_calls,
            "metadata": request.metadata or {},
            "model": self.model,
            "output": self._output.items("in_progress" if status == "in_progress" else "incomplete"),
            "parallel_tool_calls": request.parallel_tool_calls is not False,
            "previous_response_id": request.previous_response_id,
            "prompt_cache_key": request.prompt_cache_key,
            "prompt_cache_retention": request.prompt_cache_retention,
            "reasoning": {
                "effort": reasoning.effort if reasoning else None,
                "summary": reasoning.summary if reasoning else None,
            },
            "safety_identifier": request.safety_identifier,
            "service_tier": "default",
            "store": self.stored,
            "temperature": request.temperature,
            "text": {
                "format": _given(text.format) if text and text.format else {"type": "text"},
                "verbosity": (text.verbosity if text else None) or "medium",
            },
            "tool_choice": _tool_choice(request),
            "tools": offered_tools(request),
            "top_logprobs": request.top_logprobs or 0,
            "top_p": request.top_p,
            "truncation": request.truncation or "disabled",
            "usage": None,
            "user": request.user,
        }

    def _usage(self) -> dict[str, Any] | None:
        usage = self.usage
        if usage is None:
            return None
        details = usage.prompt_tokens_details
        # Engines do not count the tokens of thoughts. Their share of the text is close.
        output = self._output
        share = output.reasoning_length / output.length if output.length else 0.0
        return {
            "input_tokens": usage.prompt_tokens,
            "input_tokens_details": {"cached_tokens": details.cached_tokens if details else 0, "cache_write_tokens": 0},
            "output_tokens": usage.completion_tokens,
            "output_tokens_details": {"reasoning_tokens": round(usage.completion_tokens * share)},
            "total_tokens": usage.prompt_tokens + usage.completion_tokens,
        }


def response_error(failure: Failure, label: str) -> dict[str, Any]:
    """Return the ``error`` of a response that failed."""
    error = {
        "code": failure.code.value,
        "message": failure.message,
        "type": failure.type,
        "param": failure.param or None,
        "request_id": label,
        "tokens_sent": failure.tokens_sent,
    }
    return {**error, "model": failure.model} if failure.model else error


def _given(value: msgspec.Struct) -> dict[str, Any]:
    return {name: each for name, each in msgspec.structs.asdict(value).items() if each is not None}


def _tool_choice(request: ResponseRequest) -> Any:
    choice = request.tool_choice
    return _given(choice) if isinstance(choice, msgspec.Struct) else choice or "auto"


def whole_response(
    builder: ResponseBuilder, answer: WholeAnswer, clock: Callable[[], float] | None = None
) -> dict[str, Any]:
    """Return the response; raises ``backend_error`` for an answer that is not a chat completion."""
    completion = read_completion(answer)
    builder.model = builder.model or completion.model
    builder.usage = completion.usage
    for choice in completion.choices[:1]:
        builder.add(_as_delta(choice))
    builder.end()
    return builder.ended((clock or SERVER_CLOCK.seconds)())


def _as_delta(choice: CompletedChoice) -> ChoiceDelta:
    """Return a whole choice as the only piece of a stream, so that both become a response in the same way."""
    message = choice.answered
    calls = [msgspec.structs.replace(call, index=position) for position, call in enumerate(message.tool_calls or ())]
    delta = MessageDelta(content=message.content, reasoning_content=message.reasoning_content, tool_calls=calls)
    return ChoiceDelta(delta=delta, logprobs=choice.logprobs, finish_reason=choice.finish_reason)
