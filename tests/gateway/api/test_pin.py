"""pin: the fields of Lemonade's document, under our path and under theirs, and wrong requests."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.api.common.dialect import VERSION_PREFIXES
from protocol.failures import Code, Failure
from protocol.messages.models import PinModel
from tests.gateway.api.error_bodies import is_error
from tests.gateway.app_client import AppClient

PATHS = [*(f"{prefix}/pin" for prefix in VERSION_PREFIXES), "/internal/pin"]


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("field", ["model_name", "model"])
@pytest.mark.parametrize("pinned", [True, False])
def test_a_model_is_pinned_or_unpinned(ask: AppClient, path: str, field: str, pinned: bool) -> None:
    ask.reports[PinModel] = "M"
    result = ask("POST", path, {field: "m:latest", "pinned": pinned})
    assert result.json == {"status": "success", "model_name": "M", "pinned": pinned}
    (sent,) = ask.asked(PinModel)
    assert (sent.model, sent.pinned) == ("m:latest", pinned)


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"pinned": True}, "model_name"),
        ({"model_name": "m"}, "pinned"),
        ({"model_name": "m", "pinned": None}, "pinned"),
        ({"model_name": "m", "pinned": 1}, "pinned"),
        ({"model_name": "a", "model": "b", "pinned": True}, "model_name"),
        ({"model_name": "m", "pin": True, "pinned": True}, "pin"),
    ],
)
def test_pin_says_which_field_is_wrong(ask: AppClient, body: dict[str, Any], param: str) -> None:
    is_error(ask("POST", "/v1/pin", body), 400, "invalid_request", param)
    assert not ask.bus.sent


def test_a_model_that_is_not_loaded_is_404(ask: AppClient) -> None:
    ask.reports[PinModel] = Failure(Code.NOT_LOADED, "Model not loaded: m", model="m")
    is_error(ask("POST", "/v1/pin", {"model": "m", "pinned": True}), 404, "not_found")
