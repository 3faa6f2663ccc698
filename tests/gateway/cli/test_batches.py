"""``lemonbus batches``."""

from __future__ import annotations

from tests.gateway.cli.conftest import Ends
from tests.gateway.fake_server import FakeServer, Reply

COUNTS = {"total": 5, "completed": 2, "failed": 1}
BATCH = {"id": "batch_1", "status": "in_progress", "request_counts": COUNTS, "endpoint": "/v1/embeddings"}
WAITING = {**BATCH, "waiting_reason": "Model m: no slot is free"}
MESSAGES = {
    "id": "msgbatch_2",
    "processing_status": "ended",
    "request_counts": {"processing": 0, "succeeded": 3, "errored": 1, "canceled": 1, "expired": 0},
}


def test_batches_are_listed_and_cancelled(server: FakeServer, lemonbus: Ends) -> None:
    lists = ("GET", "/v1/batches?limit=100"), ("GET", "/v1/messages/batches?limit=100")
    for route, batch in zip(lists, (WAITING, MESSAGES), strict=True):
        server.replies[route] = Reply({"data": [batch]})
    assert [line.split() for line in lemonbus("batches")[1].splitlines()] == [
        ["BATCH", "STATUS", "DONE", "FAILED", "ALL", "ROUTE", "WAITS", "BECAUSE"],
        ["batch_1", "in_progress", "2", "1", "5", "/v1/embeddings", "Model", "m:", "no", "slot", "is", "free"],
        ["msgbatch_2", "ended", "3", "2", "5", "/v1/messages"],
    ]
    server.replies["POST", "/v1/batches/batch_1/cancel"] = Reply({**BATCH, "status": "cancelling"})
    assert lemonbus("batches", "cancel", "batch_1")[1] == "batch_1 is cancelling.\n"
    server.replies["POST", "/v1/messages/batches/msgbatch_2/cancel"] = Reply(MESSAGES)
    assert lemonbus("batches", "cancel", "msgbatch_2")[1] == "msgbatch_2 is ended.\n"
    for route in lists:
        server.replies[route] = Reply({"data": []})
    assert lemonbus("batches")[1] == "There are no batches.\n"
