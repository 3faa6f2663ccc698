"""A request of the Responses API as it goes on the bus: each file in ``golden/requests`` has both."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gateway.api.responses.input.chat_request import shortened
from protocol.messages import work
from tests.gateway.api.responses.deterministic import GOLDEN
from tests.gateway.app_client import AppClient

FILES = sorted((GOLDEN / "requests").glob("*.json"))


@pytest.mark.usefixtures("unchanged_media")
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_what_goes_on_the_bus(ask: AppClient, path: Path) -> None:
    golden = json.loads(path.read_text())
    ask.answers["chat/completions"] = {"choices": [{"message": {"content": "x"}}]}
    result = ask("POST", "/v1/responses", {"model": "m", "store": False, **golden["request"]})
    assert result.status_code == 200, result.text
    (submitted,) = ask.asked(work.SubmitRequest)
    assert (submitted.endpoint, submitted.model) == ("chat/completions", "m")
    assert submitted.stream == golden["request"].get("stream", False)
    assert json.loads(ask.bus.bodies[0]) == {"model": "m", **golden["bus"]}


def message(role: str, text: str) -> dict[str, Any]:
    return {"role": role, "content": text}


SYSTEM, TOOL = message("system", "s"), message("tool", "t")
ONE, TWO, THREE = (message("user", text) for text in ("1", "2", "3"))


@pytest.mark.parametrize(
    ("messages", "shorter"),
    [
        ([ONE, TWO, THREE], [THREE]),
        ([SYSTEM, ONE, TWO, THREE], [SYSTEM, THREE]),
        ([SYSTEM, ONE, TWO], [SYSTEM, TWO]),
        ([ONE, TWO, TOOL, THREE], [THREE]),
        ([SYSTEM, ONE], None),
        ([ONE], None),
        ([SYSTEM], None),
        ([ONE, TOOL], None),
    ],
)
def test_the_older_half_is_left_out(messages: list[Any], shorter: list[Any] | None) -> None:
    assert shortened(messages) == shorter
