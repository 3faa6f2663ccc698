"""What the routes of OpenAI's Responses API take and answer, for the OpenAPI document."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta

from gateway.api.common.operations import (
    EVENT_STREAM,
    INFERENCE,
    NOT_FOUND,
    Documentation,
    Operation,
    Stream,
)
from gateway.api.responses import create, input_tokens, stored, stored_form
from gateway.api.responses.input.request import ResponseRequest

_REQUEST: Final = {"model": "SmolLM2-135M-Instruct-GGUF", "input": "Why is the sky blue?", "max_output_tokens": 64}


class ResponseUsage(msgspec.Struct):
    """Tokens of a response."""

    input_tokens: int
    output_tokens: int
    total_tokens: int
    input_tokens_details: dict[str, int]
    output_tokens_details: dict[str, int]


class Response(msgspec.Struct):
    """A response: the request's fields, its status, and the items of its output."""

    id: str
    object: Literal["response"]
    created_at: int
    status: Literal["in_progress", "completed", "incomplete", "failed", "cancelled"]
    background: bool
    completed_at: int | None
    error: dict[str, Any] | None
    incomplete_details: dict[str, Any] | None
    instructions: str | None
    model: str
    output: list[dict[str, Any]]
    previous_response_id: str | None
    store: bool
    usage: ResponseUsage | None


class DeletedResponse(msgspec.Struct):
    """A response is forgotten."""

    id: str
    object: str
    deleted: bool


class ItemList(msgspec.Struct):
    """A page of the items that a response was generated from."""

    object: str
    data: list[dict[str, Any]]
    first_id: str | None
    last_id: str | None
    has_more: bool


class ItemsQuery(msgspec.Struct):
    """Which page."""

    order: Literal["asc", "desc"] = "desc"
    after: str | msgspec.UnsetType = msgspec.UNSET
    limit: Annotated[int, Meta(ge=1, le=stored_form.MAX_PAGE)] = 20


class StoredResponseQuery(msgspec.Struct):
    """With `stream`, the events of a background response that was requested as a stream, even while it runs."""

    stream: bool = False
    starting_after: Annotated[int, Meta(ge=0, le=999_999_999)] | None = None
    """Only with `stream`: send the events after the one with this number."""


DOCUMENTATION: Final = Documentation(
    "Responses",
    "OpenAI's Responses API, with responses that are stored and continued.",
    {
        create.ResponsesResource: {
            "POST": Operation(
                "Generates a response.",
                body=ResponseRequest,
                needs=("input",),
                answer=Response,
                stream=Stream(
                    EVENT_STREAM,
                    'event: response.created\ndata: {"type":"response.created","sequence_number":0}\n\n'
                    'event: response.completed\ndata: {"type":"response.completed","sequence_number":9}\n\n',
                ),
                failures=INFERENCE,
                examples={
                    "whole": _REQUEST,
                    "stream": {**_REQUEST, "stream": True},
                    "items": {
                        **_REQUEST,
                        "input": [{"role": "user", "content": [{"type": "input_text", "text": "Hello"}]}],
                        "store": False,
                    },
                },
            )
        },
        input_tokens.InputTokensResource: {
            "POST": Operation(
                "Counts the tokens of a response's prompt.",
                body=ResponseRequest,
                needs=("input",),
                answer=input_tokens.InputTokens,
                failures=INFERENCE,
                examples={"text": _REQUEST},
            )
        },
        stored.StoredResponseResource: {
            "GET": Operation(
                "Shows a stored response.",
                answer=Response,
                query=StoredResponseQuery,
                stream=Stream(
                    EVENT_STREAM,
                    'event: response.completed\ndata: {"type":"response.completed","sequence_number":9}\n\n',
                ),
                failures=NOT_FOUND,
            ),
            "DELETE": Operation("Forgets a stored response.", answer=DeletedResponse, failures=NOT_FOUND),
        },
        stored.InputItemsResource: {
            "GET": Operation(
                "Lists what a response was generated from.", answer=ItemList, query=ItemsQuery, failures=NOT_FOUND
            )
        },
        stored.CancelResource: {
            "POST": Operation("Cancels a response of the background.", answer=Response, failures=NOT_FOUND)
        },
    },
)
