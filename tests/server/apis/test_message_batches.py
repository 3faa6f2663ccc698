"""Message batches through the unmodified ``anthropic`` package."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

from tests.conftest import StartServer
from tests.support.clients.anthropic_client import anthropic_client
from tests.support.server import LemonbusServer
from tests.support.waiting import wait_for

if TYPE_CHECKING:
    import anthropic

LOOP = "extra.tiny-loop"
LONG_S = 120.0


@pytest.fixture(scope="module")
def server(start_module_server: StartServer) -> LemonbusServer:
    return start_module_server("tiny-loop", slots=2)


@pytest.fixture
def client(server: LemonbusServer) -> Iterator[anthropic.Anthropic]:
    with anthropic_client(server) as made:
        yield made


def message(custom_id: str, tokens: int = 4, **params: Any) -> Any:
    given = {"model": LOOP, "max_tokens": tokens, "messages": [{"role": "user", "content": "hi"}], **params}
    return {"custom_id": custom_id, "params": given}


def wait_ended(client: anthropic.Anthropic, batch_id: str) -> None:
    wait_for(lambda: client.messages.batches.retrieve(batch_id).processing_status == "ended", "the batch ended", LONG_S)


def test_the_life_of_a_batch(server: LemonbusServer, client: anthropic.Anthropic) -> None:
    import anthropic  # noqa: PLC0415 - it takes a second to import

    batches = client.messages.batches
    begun = batches.create(requests=[message("a"), message("b"), message("wrong", temperature=7)])
    assert (begun.type, begun.request_counts.processing, begun.results_url) == ("message_batch", 3, None)
    wait_ended(client, begun.id)
    batch = batches.retrieve(begun.id)
    counts = batch.request_counts
    assert (counts.processing, counts.succeeded, counts.errored, counts.canceled) == (0, 2, 1, 0)
    assert batch.results_url == f"http://127.0.0.1:{server.port}/v1/messages/batches/{batch.id}/results"
    results = {each.custom_id: each.result for each in batches.results(batch.id)}
    assert set(results) == {"a", "b", "wrong"}
    assert results["a"].type == "succeeded"
    assert results["a"].message.usage.output_tokens == 4
    assert results["wrong"].type == "errored"
    assert results["wrong"].error.error.type == "invalid_request_error"
    later = batches.create(requests=[message("c")])
    wait_ended(client, later.id)
    assert [each.id for each in batches.list(limit=1)] == [later.id, batch.id], "page by page, the newest first"
    assert [each.id for each in batches.list(before_id=batch.id, limit=1).data] == [later.id]
    assert batches.delete(batch.id).type == "message_batch_deleted"
    with pytest.raises(anthropic.NotFoundError):
        batches.retrieve(batch.id)


def test_cancelled(client: anthropic.Anthropic) -> None:
    import anthropic  # noqa: PLC0415 - it takes a second to import

    batches = client.messages.batches
    batch = batches.create(requests=[message(f"long-{each}", 4000) for each in range(8)])
    with pytest.raises(anthropic.BadRequestError, match="cancel it first"):
        batches.delete(batch.id)
    cancelled = batches.cancel(batch.id)
    assert cancelled.processing_status in ("canceling", "ended")
    assert cancelled.cancel_initiated_at is not None
    wait_ended(client, batch.id)
    ended = batches.retrieve(batch.id).request_counts
    assert (ended.processing, ended.succeeded + ended.canceled) == (0, 8)
    kinds = [each.result.type for each in batches.results(batch.id)]
    assert sorted(kinds) == ["canceled"] * ended.canceled + ["succeeded"] * ended.succeeded


def test_wrong_requests(client: anthropic.Anthropic) -> None:
    import anthropic  # noqa: PLC0415 - it takes a second to import

    for requests, named in (
        ([message("a"), message("a")], r"requests\[1\].custom_id is used twice"),
        ([message("a b")], "custom_id"),
        ([message("a\n")], "custom_id"),
        ([message("a", stream=True)], "cannot be a stream"),
        ([], "requests"),
    ):
        with pytest.raises(anthropic.BadRequestError, match=named):
            client.messages.batches.create(requests=requests)
    with pytest.raises(anthropic.NotFoundError):
        client.messages.batches.retrieve("batch_" + "0" * 32)
