"""``lemonbus updates``: what is newer elsewhere, what could not be checked, and the exit code."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.gateway.cli.conftest import Ends
from tests.gateway.fake_server import FakeServer, Reply

ROUTE = ("POST", "/v1/models/check-updates")
NOTHING: dict[str, Any] = {
    "status": "success",
    "updates_available": 0,
    "models": [],
    "failed_models": {},
    "unchecked_models": [],
    "backends": [],
}
SOME = {
    **NOTHING,
    "status": "failed",
    "updates_available": 1,
    "models": ["A"],
    "failed_models": {"B": "the hub answered 404"},
    "unchecked_models": ["kokoro-v1"],
    "backends": [{"backend": "llamacpp:cpu", "installed": "b1"}, {"backend": "flm:npu", "installed": ""}],
}


def test_each_update_has_the_command_that_fetches_it(server: FakeServer, lemonbus: Ends) -> None:
    server.replies[ROUTE] = Reply(SOME)
    code, out, err = lemonbus("updates")
    assert (code, err) == (1, "")
    found = {line.split()[0]: " ".join(line.split()[1:]) for line in out.splitlines()[1:]}
    assert found == {
        "A": "newer files at the hub lemonbus delete A, then pull it again",
        "llamacpp:cpu": "installed: b1 lemonbus backends install llamacpp:cpu",
        "flm:npu": "installed: an unknown version lemonbus backends install flm:npu",
        "B": "not checked: the hub answered 404 -",
        "kokoro-v1": "not checked: it comes from no hub -",
    }


@pytest.mark.parametrize(
    ("answer", "last"),
    [(NOTHING, "Everything is up to date."), ({**NOTHING, "unchecked_models": ["k"]}, "No update was found.")],
)
def test_nothing_new(server: FakeServer, lemonbus: Ends, answer: dict[str, Any], last: str) -> None:
    server.replies[ROUTE] = Reply(answer)
    code, out, _ = lemonbus("updates")
    assert (code, out.splitlines()[-1]) == (0, last)
    code, out, _ = lemonbus("updates", "--json")
    assert (code, json.loads(out)) == (0, answer)
