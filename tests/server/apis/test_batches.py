"""Batches through the unmodified ``openai`` package, over tiny models; beside other requests, and across deaths of processes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

from tests.conftest import StartServer
from tests.support import processes
from tests.support.clients.openai_client import openai_client
from tests.support.server import LemonbusServer
from tests.support.waiting import wait_for

if TYPE_CHECKING:
    import openai
    from openai.types import Batch

LOOP = "extra.tiny-loop"
CHAT = "/v1/chat/completions"
ENDED = ("completed", "failed", "expired", "cancelled")
LONG_S = 120.0


@pytest.fixture(scope="module")
def server(start_module_server: StartServer) -> LemonbusServer:
    return start_module_server("tiny-loop", "tiny-chat", max_loaded_models=1, slots=2)


@pytest.fixture
def client(server: LemonbusServer) -> Iterator[openai.OpenAI]:
    with openai_client(server) as made:
        yield made


def chat(custom_id: str, tokens: int = 4, **fields: Any) -> dict[str, Any]:
    body = {"model": LOOP, "messages": [{"role": "user", "content": custom_id}], "max_tokens": tokens, **fields}
    return {"custom_id": custom_id, "method": "POST", "url": CHAT, "body": body}


def begin(client: openai.OpenAI, lines: list[Any], endpoint: Any = CHAT, **fields: Any) -> Batch:
    content = b"".join((line if isinstance(line, str) else json.dumps(line)).encode() + b"\n" for line in lines)
    file = client.files.create(file=("requests.jsonl", content), purpose="batch")
    fields.setdefault("completion_window", "24h")
    return client.batches.create(input_file_id=file.id, endpoint=endpoint, **fields)


def ended(client: openai.OpenAI, batch: Batch) -> Batch:
    wait_for(lambda: client.batches.retrieve(batch.id).status in ENDED, "the batch ended", LONG_S)
    return client.batches.retrieve(batch.id)


def results(client: openai.OpenAI, file_id: str | None) -> dict[str, Any]:
    assert file_id is not None
    lines = [json.loads(line) for line in client.files.content(file_id).text.splitlines()]
    found = {line["custom_id"]: line for line in lines}
    assert len(found) == len(lines), "no line has two results"
    return found


def batch_jobs(server: LemonbusServer) -> list[int]:
    return [each.pid for each in processes.of_server(server.runtime) if each.runs("workers.jobs.run_batches")]


def test_a_batch(server: LemonbusServer, client: openai.OpenAI) -> None:
    wrong = chat("wrong", temperature="hot")
    begun = begin(client, [*(chat(f"line-{i}") for i in range(6)), wrong, "   "], metadata={"for": "test"})
    assert (begun.object, begun.status, begun.metadata) == ("batch", "validating", {"for": "test"})
    batch = ended(client, begun)
    counts = batch.request_counts
    assert counts is not None
    assert (batch.status, counts.total, counts.completed, counts.failed) == ("completed", 7, 6, 1)
    output, errors = results(client, batch.output_file_id), results(client, batch.error_file_id)
    assert set(output) == {f"line-{i}" for i in range(6)}
    one = output["line-3"]
    assert (one["error"], one["response"]["status_code"]) == (None, 200)
    assert one["response"]["body"]["usage"]["completion_tokens"] == 4
    assert one["response"]["request_id"]
    assert errors["wrong"]["response"]["status_code"] == 400
    assert "temperature" in errors["wrong"]["response"]["body"]["error"]["message"]
    assert client.files.retrieve(batch.output_file_id or "").purpose == "batch_output"
    assert next(each.id for each in client.batches.list(limit=1)) == batch.id
    wait_for(lambda: not (server.home / "state" / "batches" / "pending").exists(), "nothing is pending")
    wait_for(lambda: not batch_jobs(server), "the job ended")


def test_a_batch_says_why_it_waits(client: openai.OpenAI) -> None:
    client.chat.completions.create(model=LOOP, messages=[{"role": "user", "content": "hi"}], max_tokens=1)
    batch = begin(client, [chat("e", model="extra.tiny-chat")])
    wait_for(lambda: "just used" in str(client.batches.retrieve(batch.id)), "it says why it waits", LONG_S)
    shown: Any = next(each for each in client.batches.list() if each.id == batch.id)
    assert shown.status == "in_progress"
    assert shown.waiting_reason == "Model extra.tiny-chat: models that were just used would have to leave for it"
    cancelled = client.batches.cancel(batch.id)
    assert cancelled.status in ("cancelling", "cancelled")
    batch = ended(client, batch)
    assert not hasattr(batch, "waiting_reason")
    assert batch.status == "cancelled", "a model that was just used does not leave for a batch"
    assert results(client, batch.error_file_id)["e"]["error"]["code"] == "batch_cancelled"


def test_wrong_lines_are_named(client: openai.OpenAI) -> None:
    lines = [
        chat("a"),
        chat("a"),
        "{",
        {**chat("b"), "url": "/v1/embeddings"},
        {"method": "POST"},
        chat("c", stream=True),
        {**chat("d"), "method": "GET"},
    ]
    batch = ended(client, begin(client, lines))
    assert batch.status == "failed"
    assert batch.errors is not None
    found = [(each.line, each.code) for each in batch.errors.data or []]
    assert found == [
        (2, "duplicate_custom_id"),
        (3, "invalid_json_line"),
        (4, "mismatched_endpoint"),
        (5, "invalid_request"),
        (6, "invalid_body"),
        (7, "invalid_method"),
    ]


def test_refusals(client: openai.OpenAI) -> None:
    import openai  # noqa: PLC0415 - it takes a second to import

    with pytest.raises(openai.BadRequestError, match="there is no file"):
        client.batches.create(input_file_id="file-x", endpoint=CHAT, completion_window="24h")
    with pytest.raises(openai.BadRequestError, match="endpoint"):
        begin(client, [chat("a")], endpoint="/v1/pull")
    with pytest.raises(openai.BadRequestError, match="completion_window"):
        begin(client, [chat("a")], completion_window="24h\n")
    done = ended(client, begin(client, [chat("a")]))
    with pytest.raises(openai.ConflictError, match="completed"):
        client.batches.cancel(done.id)
    with pytest.raises(openai.NotFoundError):
        client.batches.retrieve("batch_x")
    forged = client.with_options(default_headers={"X-Lemonbus-Batch": "x y"})
    with pytest.raises(openai.AuthenticationError, match="own requests"):
        forged.models.list()


def test_a_page_of_another_site_uses_no_files_or_batches(server: LemonbusServer) -> None:
    paths = ("files", "files/file-x", "files/file-x/content", "batches", "batches/batch_x", "messages/batches")
    for path in paths:
        foreign, own = (
            server.client.get(f"/v1/{path}", Origin=each) for each in ("http://other.test", "http://localhost:3")
        )
        assert (foreign.status, own.status) == (403, 404 if "x" in path else 200), path
    assert server.client.post("/v1/files", {}, Origin="http://other.test").status == 403
    assert server.client.post("/v1/batches/batch_x/cancel", {}, Origin="http://other.test").status == 403
    assert server.client.get("/v1/models", Origin="http://other.test").status == 200


def test_another_request_gets_the_slot_of_a_batch(server: LemonbusServer, client: openai.OpenAI) -> None:
    endless = [chat(f"long-{i}", 4000) for i in range(4)]
    batch = begin(client, endless)
    wait_for(lambda: server.busy_slots(LOOP) == 2, "the batch has both slots", LONG_S)
    for _ in range(3):
        answer = client.chat.completions.create(
            model=LOOP, messages=[{"role": "user", "content": "now"}], max_tokens=2, timeout=20
        )
        assert answer.usage is not None
        assert answer.usage.completion_tokens == 2
    client.batches.cancel(batch.id)
    assert ended(client, batch).status == "cancelled"
