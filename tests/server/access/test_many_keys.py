"""A hundred keys with six clients each at two gateway processes: limits are exact to one request, and no key starves."""

from __future__ import annotations

import json
import math
import random
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from protocol.config.api_keys import KEYS_FILE, ApiKey, Scope, digest, write_keys
from tests.support import processes
from tests.support.clients.http_client import RawHttpClient
from tests.support.clients.request_burst import BurstClient, RequestBurst
from tests.support.server import LemonbusServer
from tests.support.waiting import wait_for

CHAT, PAUSED = "extra.tiny-chat", "extra.tiny-loop"
PATH = "/v1/chat/completions"
CLIENTS, SLOTS = 6, 4
LIMITS = {f"requests{number}": 1 + number % 5 for number in range(40)}
ALLOWED = {f"answers{number}": 1 + number % 4 for number in range(30)}
"""Key → answers that its tokens a minute suffice for."""
AT_ONCE = {f"once{number}": 1 + number % 3 for number in range(30)}
KEYS = [*LIMITS, *ALLOWED, *AT_ONCE]


def body(model: str) -> dict[str, object]:
    return {"model": model, "messages": [{"role": "user", "content": "hi"}], "max_tokens": 1}


def keys_with_limits(tokens: int) -> Iterator[ApiKey]:
    """Yield the keys; an answer costs ``tokens``."""
    limits = {name: {"requests_per_minute": limit} for name, limit in LIMITS.items()}
    # Half an answer less, so that neither rounding nor the tokens regained in a few seconds make a difference.
    limits |= {name: {"tokens_per_minute": tokens * count - tokens // 2} for name, count in ALLOWED.items()}
    limits |= {name: {"concurrent": limit} for name, limit in AT_ONCE.items()}
    for name, fields in limits.items():
        yield ApiKey(name=name, sha256=digest(name), scopes=[Scope.INFERENCE], **fields)


@pytest.fixture(scope="module")
def server(keyed_server: LemonbusServer) -> LemonbusServer:
    """A server with two loaded models."""
    for model in (CHAT, PAUSED):
        assert keyed_server.client.post(PATH, body(model), **keyed_server.admin_headers).status == 200
    return keyed_server


def write(server: LemonbusServer, keys: list[ApiKey]) -> None:
    """Write the keys, and wait until both gateway processes know the last one."""
    write_keys(Path(server.settings.state_dir) / KEYS_FILE, keys)
    last = RawHttpClient(server.port, {"Authorization": f"Bearer {keys[-1].name}"})
    wait_for(lambda: all(last.get("/v1/models").status == 200 for _ in range(16)), "the gateways know the keys")


def statuses(clients: list[BurstClient]) -> dict[str, Counter[int]]:
    """Return how often each key got each status."""
    found: dict[str, Counter[int]] = {}
    for client in clients:
        found.setdefault(client.key, Counter())[client.status] += 1
    return found


def test_limits_are_exact_for_every_key(server: LemonbusServer) -> None:
    first = server.client.post(PATH, body(CHAT), **server.admin_headers).json()
    tokens: int = first["usage"]["total_tokens"]
    write(server, list(keys_with_limits(tokens)))
    began = time.monotonic()
    storm = [key for key in (*LIMITS, *AT_ONCE) for _ in range(CLIENTS)]
    random.Random(7).shuffle(storm)
    with (
        RequestBurst(server.port, PATH, body(CHAT)) as burst,
        RequestBurst(server.port, PATH, body(PAUSED)) as paused,
    ):
        with processes.stopped(server.engine_pid(PAUSED)):
            # No answer ends here, so all that a key may send at once runs or waits at the same time.
            for key in storm:
                (burst if key in LIMITS else paused).send([key])
            refused = sum(CLIENTS - limit for limit in AT_ONCE.values())
            paused.until(lambda: len(paused.answered) == refused, f"{refused} are refused")
            assert {client.status for client in paused.answered} == {429}
        everyone = sum(AT_ONCE.values())
        paused.until(lambda: len(paused.answered) == refused + everyone, "the accepted ones are answered")
        burst.until(lambda: len(burst.answered) == CLIENTS * len(LIMITS), "all are answered")
        found = statuses(paused.answered + burst.answered)

        # The tokens of an answer are known at its end: the clients of a key ask one after the other.
        for turn in range(CLIENTS):
            clients = burst.send(ALLOWED)
            burst.until(lambda clients=clients: all(client.over for client in clients), f"turn {turn} is answered")
            for client in clients:
                found.setdefault(client.key, Counter())[client.status] += 1
                assert client.status != 200 or json.loads(client.body())["usage"]["total_tokens"] == tokens
    minutes = (time.monotonic() - began) / 60
    assert {key: sum(counts.values()) for key, counts in found.items()} == dict.fromkeys(KEYS, CLIENTS)
    assert {status for counts in found.values() for status in counts} == {200, 429}
    accepted = {key: counts[200] for key, counts in found.items()}
    assert {key: accepted[key] for key in AT_ONCE} == AT_ONCE
    for key, limit in LIMITS.items():
        assert limit <= accepted[key] <= math.floor(limit * (1 + minutes)), key
    for key, count in ALLOWED.items():
        most = math.ceil((tokens * count - tokens // 2) * (1 + minutes) / tokens)
        assert count <= accepted[key] <= most, key


def test_no_key_starves(server: LemonbusServer) -> None:
    """All requests wait while the engine is stopped. Then the keys take turns, whichever request came first."""
    write(server, [ApiKey(name=name, sha256=digest(name), scopes=[Scope.INFERENCE]) for name in KEYS])
    rounds, before = 3, len(server.lines)
    with RequestBurst(server.port, PATH, body(PAUSED)) as burst:
        with processes.stopped(server.engine_pid(PAUSED)):
            greedy, *others = KEYS
            burst.send([greedy] * CLIENTS)
            burst.send(key for key in others for _ in range(CLIENTS))
            wait_for(
                lambda: server.state()["queued"] + server.state()["granted"] == CLIENTS * len(KEYS), "all wait", 30
            )
        burst.until(lambda: len(burst.answered) >= rounds * len(KEYS), "some are answered")
        assert {client.status for client in burst.answered} == {200}
        wait_for(lambda: len(granted(server, before)) >= rounds * len(KEYS), "the log has their grants")
    counts = Counter(granted(server, before)[: rounds * len(KEYS)])
    assert all(counts[key] >= rounds - 1 for key in KEYS), counts
    # Those that had the slots when the engine was stopped had them before any other key waited.
    assert sum(max(0, count - rounds - 1) for count in counts.values()) <= SLOTS, counts
    server.assert_idle()


def granted(server: LemonbusServer, first_line: int) -> list[str]:
    """Return the keys that the stopped model's slots were given to, in this order, by the log from a line on."""
    grants = [line for line in server.lines[first_line:] if line["event"] == "granted" and line["model"] == PAUSED]
    return [line["request_id"].rpartition(".")[0] for line in grants if line["request_id"].startswith(tuple(KEYS))]
