"""Another supervisor goes on with what each key has used of its limits, and with every counter, after a death and a reload."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest

from protocol.config.api_keys import KEYS_FILE, ApiKey, Scope, digest, write_keys
from tests.conftest import StartServer
from tests.faults.supervisors.recoveries import counters, fallen, kill_supervisor, recovered_since, recoveries
from tests.support.clients.http_client import RawHttpClient
from tests.support.clients.http_exchange import HttpExchange
from tests.support.server import LemonbusServer
from tests.support.waiting import pause, wait_for

ADMIN: Final = "administrator"
MODEL: Final = "extra.tiny-chat"
LONGEST_TEST_S: Final = 120.0
LIMITS: Final = {
    "requests": {"requests_per_minute": 2},
    "tokens": {"tokens_per_minute": 40},
    "day": {"tokens_per_day": 60},
    "month": {"tokens_per_month": 60},
}


def reload(server: LemonbusServer) -> None:
    """Replace the supervisor in an orderly way, as every reload does that changes something."""
    before = len(recoveries(server))
    answer = server.client.post("/internal/upgrade", {}, **server.admin_headers)
    assert answer.status == 200, answer
    recovered_since(server, before)


REPLACED: Final[dict[str, Callable[[LemonbusServer], object]]] = {"killed": kill_supervisor, "handed over": reload}


@pytest.fixture(autouse=True)
def one_day() -> None:
    """No day ends during a test: wait for the next one if this one ends soon."""
    left = 86_400 - time.time() % 86_400
    if left < LONGEST_TEST_S:
        pause(left)


@pytest.fixture
def server(start_server: StartServer, tmp_path: Path) -> LemonbusServer:
    keys = [ApiKey(name=name, sha256=digest(name), scopes=[Scope.INFERENCE], **limit) for name, limit in LIMITS.items()]
    state = tmp_path / "state"
    state.mkdir()
    write_keys(state / KEYS_FILE, keys)
    return start_server("tiny-chat", admin_api_key=ADMIN, state_dir=str(state))


def ask(server: LemonbusServer, key: str, tokens: int = 8) -> HttpExchange:
    body = {"model": MODEL, "messages": [{"role": "user", "content": "hi"}], "max_tokens": tokens, "ignore_eos": True}
    return RawHttpClient(server.port, {"Authorization": f"Bearer {key}"}).post("/v1/chat/completions", body)


@pytest.mark.parametrize("replaced", REPLACED)
def test_a_key_that_has_used_its_limit_is_still_refused(server: LemonbusServer, replaced: str) -> None:
    began = time.monotonic()
    accepted = [ask(server, "requests").status for _ in range(3)].count(200)
    assert accepted >= 2
    used = {key: ask(server, key).json()["usage"]["total_tokens"] for key in ("tokens", "day", "month")}
    while (answer := ask(server, "day")).status == 200:
        used["day"] += answer.json()["usage"]["total_tokens"]
    assert 60 <= used["day"] < 2 * 60
    REPLACED[replaced](server)
    accepted += [ask(server, "requests").status for _ in range(3)].count(200)
    assert accepted <= 2 * (1 + (time.monotonic() - began) / 60)
    refused = ask(server, "day")
    assert (refused.status, refused.error["code"]) == (429, "insufficient_quota")
    assert 0 < int(refused.headers["retry-after"]) <= 86_400
    assert refused.headers["x-should-retry"] == "false"
    answer = ask(server, "month", 1)
    assert answer.status == 200
    assert answer.headers["x-ratelimit-limit-tokens-month"] == "60"
    assert answer.headers["x-ratelimit-remaining-tokens-month"] == str(60 - used["month"])
    left = int(ask(server, "tokens", 1).headers["x-ratelimit-remaining-tokens"])
    assert left <= 40 - used["tokens"] + 40 * (time.monotonic() - began) / 60 + 1


@pytest.mark.parametrize("replaced", REPLACED)
def test_no_counter_falls(server: LemonbusServer, replaced: str) -> None:
    assert ask(server, "day").status == 200
    assert ask(server, "nobody").status == 401
    before = wait_for(lambda: found if (found := counters(server)) and key_tokens(found) else None, "it was counted")
    for _ in range(2):
        REPLACED[replaced](server)
        after = counters(server)
        assert fallen(before, after) == {}
        assert key_tokens(after) == key_tokens(before)
        before = after


def key_tokens(found: dict[str, float]) -> float:
    return sum(value for name, value in found.items() if name.startswith("lemonbus_key_tokens"))


def test_after_a_restart_the_day_and_the_month_go_on(server: LemonbusServer, start_server: StartServer) -> None:
    while ask(server, "day").status == 200:
        pass
    used = ask(server, "month").json()["usage"]["total_tokens"]
    server.stop()
    again = start_server("tiny-chat", admin_api_key=ADMIN, state_dir=server.settings.state_dir)
    assert ask(again, "day").error["code"] == "insufficient_quota"
    assert ask(again, "month", 1).headers["x-ratelimit-remaining-tokens-month"] == str(60 - used)
    assert ask(again, "requests").status == 200, "the limits of a minute begin anew"
