"""Final refusals: OpenAI's unmodified library sends the request once and raises, although it repeats every other 409 and 5xx."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.clients.openai_client import openai_client
from tests.support.server import LemonbusServer
from tests.support.waiting import wait_for

if TYPE_CHECKING:
    import openai

CONFLICT = {"model_name": "user.Fresh", "checkpoint": "acme/X-GGUF:Q4_0", "recipe": "llamacpp"}
OTHER_PROGRAM = {"model_name": "user.Own", "checkpoint": "llama3.2:1b", "recipe": "flm"}
"""Only `flm` fetches it, and this machine cannot run that."""


@pytest.mark.parametrize(
    ("ask", "status", "code"),
    [
        (lambda client: client.post("/pull", body=CONFLICT, cast_to=object), 503, "offline"),
        (lambda client: client.post("/pull", body=OTHER_PROGRAM, cast_to=object), 501, "unsupported"),
        (
            lambda client: client.chat.completions.create(
                model="Llama-3.2-1B-FLM", messages=[{"role": "user", "content": "hi"}]
            ),
            501,
            "unsupported",
        ),
    ],
)
def test_the_library_asks_once(
    shared_server: LemonbusServer, ask: Callable[[openai.OpenAI], Any], status: int, code: str
) -> None:
    import openai  # noqa: PLC0415 - see tests/support/clients/openai_client.py

    label = uuid.uuid4().hex
    client = openai_client(shared_server).with_options(max_retries=2, default_headers={"X-Request-ID": label})
    with pytest.raises(openai.InternalServerError) as caught:
        ask(client)
    assert caught.value.status_code == status
    assert str(caught.value.code).startswith(code)
    assert caught.value.response.headers["x-should-retry"] == "false"
    assert "retry-after" not in caught.value.response.headers
    assert caught.value.response.headers["x-request-id"] == label

    def requests() -> int:
        """How many lines the log has of requests with this id."""
        return [line["event"] for line in shared_server.lines if line.get("request_id") == label].count("request")

    wait_for(requests, "the request was logged")
    assert requests() == 1
