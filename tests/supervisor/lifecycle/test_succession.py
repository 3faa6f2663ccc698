"""What the end of a supervisor's loop means, after whatever its keeper and its server did."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from unittest.mock import Mock

import pytest

from supervisor.lifecycle.succession import Succession, SuccessionState


class EndingSupervisor:
    """The parts of a supervisor that its end needs; it counts what they are asked for."""

    def __init__(self) -> None:
        self.view = SimpleNamespace(closing=False)
        self.messages = Mock(transition=None)
        self.loop, self.barrier = Mock(), Mock()
        self.keeper = Mock()
        self.succession = Succession(
            Mock(),
            self.loop,
            Mock(of=lambda _role: ["p1"]),
            Mock(),
            self.barrier,
            self.view,  # type: ignore[arg-type]
            self.messages,
            self.keeper,
        )

    def hand_over(self) -> None:
        self.keeper.on_hand_over()

    def close(self) -> None:
        self.view.closing = True

    def lose_keeper(self) -> None:
        self.keeper.on_keeper_gone()


HAND_OVER, CLOSE, LOSE_KEEPER = EndingSupervisor.hand_over, EndingSupervisor.close, EndingSupervisor.lose_keeper


@pytest.mark.parametrize(
    ("steps", "state", "hands_over"),
    [
        ([], SuccessionState.RUNNING, False),
        ([HAND_OVER], SuccessionState.HANDING_OVER, True),
        ([CLOSE, HAND_OVER], SuccessionState.RUNNING, False),
        ([LOSE_KEEPER], SuccessionState.KEEPER_GONE, False),
        ([HAND_OVER, LOSE_KEEPER], SuccessionState.KEEPER_GONE, True),
        ([LOSE_KEEPER, HAND_OVER], SuccessionState.KEEPER_GONE, False),
    ],
)
def test_the_end_of_the_loop(
    steps: Sequence[Callable[[EndingSupervisor], None]], state: SuccessionState, hands_over: bool
) -> None:
    ending = EndingSupervisor()
    for step in steps:
        step(ending)
    assert ending.succession.state is state
    assert ending.messages.begin.called == ending.barrier.wait.called == hands_over
    assert ending.loop.stop.called == (LOSE_KEEPER in steps)


def test_a_supervisor_that_takes_over_hands_over_afterwards() -> None:
    ending = EndingSupervisor()
    ending.messages.transition = "it takes over"
    ending.hand_over()
    assert ending.succession.state is SuccessionState.RUNNING
    ending.messages.transition = None
    (later,) = ending.messages.when_serving.call_args.args
    later()
    assert ending.succession.state is SuccessionState.HANDING_OVER
