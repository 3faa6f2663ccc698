"""Golden files: what engines get for a request, and the exact events that clients get for an engine's chunks."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest

from gateway.api.anthropic.chat_request import chat_body
from gateway.api.anthropic.message_events import MessageEventWriter
from gateway.api.anthropic.message_request import MessageRequest

GOLDEN = Path(__file__).parent / "golden"
REQUESTS = sorted(path for path in (GOLDEN / "requests").glob("*.json") if not path.name.endswith(".body.json"))
STREAMS = sorted((GOLDEN / "streams").glob("*.jsonl"))
MAX_TOKENS = 16


@pytest.mark.parametrize("path", REQUESTS, ids=lambda path: path.stem)
def test_a_request_becomes_this_body(path: Path) -> None:
    request = msgspec.json.decode(path.read_bytes(), type=MessageRequest)
    request.check()
    assert chat_body(request) == json.loads(path.with_suffix(".body.json").read_text())


def events_of(path: Path, block: int) -> bytes:
    """Return what a client gets if ``block`` chunks arrive at a time."""
    writer = MessageEventWriter("m", MAX_TOKENS)
    chunks = [b"data: " + line + b"\n\n" for line in path.read_bytes().splitlines()]
    blocks = [b"".join(chunks[start : start + block]) for start in range(0, len(chunks), block)]
    return b"".join(map(writer.events, blocks)) + writer.end()


@pytest.mark.parametrize("block", [1, 2, 100])
@pytest.mark.parametrize("path", STREAMS, ids=lambda path: path.stem)
def test_chunks_become_these_bytes(path: Path, block: int) -> None:
    assert events_of(path, block) == path.with_suffix(".sse").read_bytes()


@pytest.mark.parametrize("path", STREAMS, ids=lambda path: path.stem)
def test_at_most_one_block_is_open(path: Path) -> None:
    """The rules of the ``anthropic`` package: a message contains blocks, and each block ends before the next begins."""
    kinds = [json.loads(event.partition(b"data: ")[2]) for event in events_of(path, 1).split(b"\n\n")[:-1]]
    assert [kind["type"] for kind in kinds if kind["type"].startswith("message")] == [
        "message_start",
        "message_delta",
        "message_stop",
    ]
    open_block = None
    for event in kinds:
        if event["type"] == "content_block_start":
            assert open_block is None
            open_block = event["index"]
        elif event["type"].startswith("content_block"):
            assert event["index"] == open_block
            open_block = None if event["type"] == "content_block_stop" else open_block
        else:
            assert open_block is None
    indices = [event["index"] for event in kinds if event["type"] == "content_block_start"]
    assert indices == list(range(len(indices)))
