"""Names on the bus: the topics of gateways and of attempts whose engine waits."""

from __future__ import annotations

import pytest

from protocol.ids import RequestKey, held_attempt, hold_topic, peer_id, topic


def test_a_hold_topic_names_its_attempt() -> None:
    attempt = RequestKey(peer_id("gateway"), 12, 3)
    assert held_attempt(hold_topic(attempt)) == attempt


@pytest.mark.parametrize("other", [topic("g1234abcd"), b"", b"hold ", b"hold g1:2", b"hold g1:2.x", b"\xff"])
def test_other_topics_name_none(other: bytes) -> None:
    assert held_attempt(other) is None


def test_nothing_is_published_for_a_hold_topic() -> None:
    """A subscription takes all topics that begin with it."""
    gateway = peer_id("gateway")
    assert not topic(gateway).startswith(hold_topic(RequestKey(gateway, 1, 1)))
