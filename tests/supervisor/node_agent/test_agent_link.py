"""The link of an agent, or of a host of gateways, to a supervisor that ends."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from protocol.messages.peers import Hello, Shutdown
from protocol.runtime.loop import Loop
from protocol.runtime.process_context import ProcessContext
from protocol.wire import envelope
from supervisor.node_agent.agent_link import AgentLink
from tests.support.network.curve_listener import CurveListener, only_end_noticed
from tests.support.waiting import wait_for


class LinkUnderTest:
    """A link, its loop, and what its owner has heard."""

    def __init__(self, head: CurveListener, folder: Path) -> None:
        self.loop = Loop()
        self.events: list[Any] = []
        self.link = AgentLink(
            loop=self.loop,
            context=ProcessContext(folder, "b00t", os.getpid(), "gpu2"),
            address=head.address(),
            snapshot=None,
            on_message=lambda message, _payload: self.events.append(message),
            on_lost=lambda: self.events.append("lost"),
        )

    def close(self) -> None:
        self.link.close()
        self.loop.close()


@pytest.fixture
def head(tmp_path: Path) -> Iterator[CurveListener]:
    with closing(CurveListener(tmp_path)) as made:
        yield made


@pytest.fixture
def agent(head: CurveListener, tmp_path: Path) -> Iterator[LinkUnderTest]:
    with closing(LinkUnderTest(head, tmp_path)) as made:
        yield made


def test_an_order_to_end_arrives_even_if_the_end_of_the_connection_is_noticed_first(
    head: CurveListener, agent: LinkUnderTest
) -> None:
    agent.link.begin()

    def hello_arrived() -> int:
        head.check.answer()
        agent.loop.run_once(0.02)
        return head.router.poll(0)

    wait_for(hello_arrived, "Hello")
    peer, frame = head.router.recv_multipart()
    hello, _ = envelope.decode(frame)
    assert isinstance(hello, Hello)
    assert (hello.id[0], hello.node) == ("a", "gpu2")
    order = Shutdown(0.0, "the server ends", draining=True)
    head.send_and_end(peer, envelope.encode(order))
    supervisor = agent.link._supervisor
    assert supervisor is not None
    assert supervisor._connection is not None
    only_end_noticed(agent.loop, supervisor._connection)
    assert agent.events == [order, "lost"]
