"""Final refusals: OpenAI's unmodified library sends the request once and raises, although it repeats every other 409 and 5xx."""

from __future__ import annotations

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
    ("ask", "path", "status", "code"),
    [
        (
            lambda client: client.audio.speech.create(model="kokoro", voice="a", input="b"),
            "/v1/audio/speech",
            501,
            "unsupported",
        ),
        (lambda client: client.post("/pull", body=CONFLICT, cast_to=object), "/v1/pull", 503, "offline"),
        (lambda client: client.post("/pull", body=OTHER_PROGRAM, cast_to=object), "/v1/pull", 501, "unsupported"),
        (
            lambda client: client.chat.completions.create(
                model="Llama-3.2-1B-FLM", messages=[{"role": "user", "content": "hi"}]
            ),
            "/v1/chat/completions",
            501,
            "unsupported",
        ),
    ],
)
def test_the_library_asks_once(
    shared_server: LemonbusServer, ask: Callable[[openai.OpenAI], Any], path: str, status: int, code: str
) -> None:
    import openai  # noqa: PLC0415 - see tests/support/clients/openai_client.py

    client = openai_client(shared_server).with_options(max_retries=2)
    before = len(shared_server.lines)
    with pytest.raises(openai.InternalServerError) as caught:
        ask(client)
    assert caught.value.status_code == status
    assert str(caught.value.code).startswith(code)
    assert caught.value.response.headers["x-should-retry"] == "false"
    assert "retry-after" not in caught.value.response.headers
    label = caught.value.response.headers["x-request-id"]

    def requests() -> list[dict[str, Any]]:
        lines = shared_server.lines[before:]
        return [line for line in lines if line["event"] == "request" and line.get("path") == path]

    wait_for(lambda: any(line["request_id"] == label for line in requests()), "the request was logged")
    assert len(requests()) == 1
