"""A batch runs as the key that made it: its models and limits apply, other keys do not see it, and a revoked key ends it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from protocol.config.api_keys import KEYS_FILE, ApiKey, Scope, digest, write_keys
from tests.conftest import StartServer
from tests.support.server import LemonbusServer
from tests.support.waiting import wait_for

if TYPE_CHECKING:
    import openai

LOOP = "extra.tiny-loop"
CHAT = "/v1/chat/completions"
ADMIN = "adm1n"
LONG_S = 120.0


def key(name: str, **rights: Any) -> ApiKey:
    return ApiKey(name=name, sha256=digest(name), scopes=[Scope.INFERENCE], **rights)


KEYS = [key("free"), key("narrow", models=["extra.tiny-embed"]), key("slow", requests_per_minute=2), key("gone")]


@pytest.fixture(scope="module")
def server(start_module_server: StartServer) -> LemonbusServer:
    server = start_module_server("tiny-loop", "tiny-embed", admin_api_key=ADMIN, slots=2)
    write_keys(Path(server.settings.state_dir) / KEYS_FILE, KEYS)
    return server


def client_of(server: LemonbusServer, name: str) -> openai.OpenAI:
    import openai  # noqa: PLC0415 - it takes a second to import

    return openai.OpenAI(base_url=f"http://127.0.0.1:{server.port}/v1", api_key=name, max_retries=0, timeout=30)


def begin(client: openai.OpenAI, lines: int, tokens: int = 2) -> str:
    body = {"model": LOOP, "messages": [{"role": "user", "content": "hi"}], "max_tokens": tokens}
    requests = [
        json.dumps({"custom_id": str(each), "method": "POST", "url": CHAT, "body": body}) for each in range(lines)
    ]
    file = client.files.create(file=("in.jsonl", "\n".join(requests).encode()), purpose="batch")
    return client.batches.create(input_file_id=file.id, endpoint=CHAT, completion_window="24h").id


def wait_completed(client: openai.OpenAI, batch_id: str) -> list[int]:
    """Return the statuses of the requests that have failed."""
    wait_for(lambda: client.batches.retrieve(batch_id).status == "completed", "the batch is complete", LONG_S)
    errors = client.batches.retrieve(batch_id).error_file_id
    lines = client.files.content(errors).text.splitlines() if errors else []
    return [json.loads(line)["response"]["status_code"] for line in lines]


def test_its_key_decides(server: LemonbusServer) -> None:
    import openai  # noqa: PLC0415 - it takes a second to import

    free, narrow, admin = (client_of(server, name) for name in ("free", "narrow", ADMIN))
    batch = begin(free, 3)
    assert wait_completed(free, batch) == []
    with pytest.raises(openai.NotFoundError):
        narrow.batches.retrieve(batch)
    assert list(narrow.batches.list()) == []
    assert admin.batches.retrieve(batch).status == "completed"
    assert wait_completed(narrow, begin(narrow, 2)) == [403, 403]
    usage = server.client.get("/metrics", Authorization=f"Bearer {ADMIN}").body.decode()
    assert 'lemonbus_key_requests_total{key="free"} 3.0' in usage, "each request counts once, however often it waited"


def test_a_limit_makes_it_slower(server: LemonbusServer) -> None:
    slow = client_of(server, "slow")
    batch = begin(slow, 4)

    def completed() -> int:
        counts = slow.batches.retrieve(batch).request_counts
        return counts.completed if counts is not None else 0

    wait_for(lambda: completed() == 2, "two requests of the minute ran", LONG_S)
    assert slow.batches.cancel(batch).status in ("cancelling", "cancelled")


def test_a_revoked_key_ends_it(server: LemonbusServer) -> None:
    gone, admin = client_of(server, "gone"), client_of(server, ADMIN)
    batch = begin(gone, 6, tokens=4000)
    wait_for(lambda: server.busy_slots(LOOP), "it runs", LONG_S)
    write_keys(Path(server.settings.state_dir) / KEYS_FILE, [each for each in KEYS if each.name != "gone"])
    assert wait_completed(admin, batch) == [401] * 6
