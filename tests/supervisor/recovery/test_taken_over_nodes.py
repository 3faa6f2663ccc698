"""What processes of other nodes send to a new supervisor before their agents have named them."""

from __future__ import annotations

from unittest.mock import Mock

from protocol.messages.model_transfer import TransferProgress
from protocol.messages.peers import Hello
from supervisor.recovery.taken_over_nodes import TakenOverNodes

HELLO = Hello("job", "j1", 7, "boot", node="gpu1")
COPIED = TransferProgress("m", 1, 2)


def test_what_follows_an_early_hello_is_kept_in_its_order() -> None:
    agents = Mock()
    agents.handlers.return_value = {}
    nodes = TakenOverNodes(agents, Mock())
    assert not nodes.keep_later("j1", COPIED, b""), "it has not said Hello"
    assert nodes.keep("j1", HELLO, b"snapshot")
    assert nodes.keep_later("j1", COPIED, b"")
    assert not nodes.keep_later("j2", COPIED, b"")
    assert nodes.take_early() == [("j1", HELLO, b"snapshot"), ("j1", COPIED, b"")]
    assert nodes.take_early() == []
    assert not nodes.keep_later("j1", COPIED, b""), "it is known now"
