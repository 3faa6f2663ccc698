"""A loop, sockets for it, and what it logs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
import zmq

from protocol.runtime import logs
from protocol.runtime.loop import Loop


@pytest.fixture
def log_records() -> Iterator[list[dict[str, Any]]]:
    """The log records of this process, as they go to the sink."""
    records: list[dict[str, Any]] = []
    logs.configure("test", "info", "json")
    logs.set_sink(lambda line: records.append(msgspec.json.decode(line)))
    yield records
    logs.set_sink(None)


@pytest.fixture
def loop() -> Iterator[Loop]:
    made = Loop()
    yield made
    made.close()


@pytest.fixture
def pair() -> Iterator[tuple[zmq.Socket[bytes], zmq.Socket[bytes]]]:
    context = zmq.Context()
    one, other = context.socket(zmq.PAIR), context.socket(zmq.PAIR)
    one.bind("inproc://pair")
    other.connect("inproc://pair")
    yield one, other
    one.close(0)
    other.close(0)
    context.term()
