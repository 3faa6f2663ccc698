"""Which gateways have subscribed, and which requests wait for a subscription."""

from __future__ import annotations

from protocol.ids import RequestKey, topic
from workers.requests.subscriptions import Subscriptions

A1, A2, B1 = RequestKey("ga", 1, 1), RequestKey("ga", 2, 1), RequestKey("gb", 1, 1)


def test_requests_wait_for_their_gateway() -> None:
    subscriptions = Subscriptions()
    assert not subscriptions.is_subscribed("ga")
    subscriptions.wait(A1, 0.0)
    subscriptions.wait(A2, 1.0)
    subscriptions.wait(B1, 0.5)
    assert subscriptions.overdue(1.9, 2.0) == []
    assert subscriptions.joined(topic("ga")) == [A1, A2]
    assert subscriptions.is_subscribed("ga")
    assert subscriptions.overdue(2.5, 2.0) == [B1]
    assert subscriptions.waiting == []
    subscriptions.left(topic("ga"))
    assert not subscriptions.is_subscribed("ga")
    subscriptions.wait(A1, 9.0)
    subscriptions.forget(A1)
    assert subscriptions.joined(topic("ga")) == []
