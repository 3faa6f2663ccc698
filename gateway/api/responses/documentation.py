"""What the routes of OpenAI's Responses API take and answer, for the OpenAPI document."""

from __future__ import annotations

from typing import Final

from gateway.api.common.operations import (
    EVENT_STREAM,
    INFERENCE,
    Documentation,
    Operation,
    Stream,
)
from gateway.api.responses import create, input_tokens, stored_form
from gateway.api.responses.input.request import ResponseRequest

_REQUEST: Final = {"model": "SmolLM2-135M-Instruct-GGUF", "input": "Why is the sky blue?", "max_output_tokens": 64}


DOCUMENTATION: Final = Documentation(
    "Responses",
    "OpenAI's Responses API, with responses that are stored and continued.",
    {
        create.ResponsesResource: {
            "POST": Operation(
                "Generates a response.",
                body=ResponseRequest,
                needs=("input",),
                answer=stored_form.Response,
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
                needs=("input",),
                answer=input_tokens.InputTokens,
                failures=INFERENCE,
                examples={"text": _REQUEST},
            )
        },
    },
)
