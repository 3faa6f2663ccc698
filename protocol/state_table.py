"""A lifecycle as a table: state → event → next state. An event that the table does not have in a state is a bug.

The keeper imports this as well, so it does without ``typing`` when it runs.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import TypeVar

    State = TypeVar("State", bound=enum.Enum)
    Event = TypeVar("Event", bound=enum.Enum)


class IllegalTransitionError(RuntimeError):
    """The table has no such step. Going on would make the error worse."""


def next_state(table: Mapping[State, Mapping[Event, State]], state: State, event: Event) -> State:
    """Return the state after ``event``; raises :class:`IllegalTransitionError` if the table has no such step."""
    try:
        return table[state][event]
    except KeyError:
        raise IllegalTransitionError(f"{event.name} in state {state.name} of {type(state).__name__}") from None
