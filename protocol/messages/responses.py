"""Responses that the supervisor stores for OpenAI's Responses API: each request may reach another gateway process.

All are calls of a gateway (``protocol/messages/calls.py``); the docstring names the report. The JSON in them belongs to
the gateway: no other process decodes it. ``key`` is the digest of the client's API key, empty if the server has no
keys. For the holder of any other key, the response does not exist.
"""

from __future__ import annotations

import enum

import msgspec

from protocol.failures import Code
from protocol.messages.calls import Repetition, call_message, no_report, repeated_call


class ResponseState(enum.StrEnum):
    """The state of a stored response."""

    RUNNING = "running"
    ENDED = "ended"
    CANCELLED = "cancelled"
    """A client cancelled it while it ran."""
    LOST = "lost"
    """The gateway process that ran it has ended, or has given it up."""


class StoredTurn(msgspec.Struct, frozen=True):
    """One request and its response."""

    input: bytes
    """JSON: the list of the request's own items."""
    response: bytes
    """JSON: the ``response`` object, with its output."""


class StoredResponse(msgspec.Struct, frozen=True):
    """A stored response and the conversation up to it, oldest turn first."""

    state: ResponseState
    turns: list[StoredTurn]


@call_message(
    Repetition(
        done={Code.CONFLICT: no_report},
        survived=frozenset({Code.CONFLICT, Code.NOT_FOUND, Code.TOO_LARGE, Code.OVERLOADED}),
    )
)
class StoreResponse(msgspec.Struct, frozen=True, omit_defaults=True):
    """Store a response; the payload is its :class:`StoredTurn` → None.

    With ``running``, the response continues in the background and the call stays open. If the response is cancelled,
    ``Refused`` with ``cancelled`` follows. ``AbandonCall`` while the response still runs makes it ``LOST``.
    """

    number: int
    id: str
    previous: str = ""
    """Id of the stored response that this one continues."""
    running: bool = False
    key: str = ""


@repeated_call
class FinishResponse(msgspec.Struct, frozen=True):
    """A background response has ended; the payload is its JSON → None, even if it is no longer wanted."""

    number: int
    id: str


@repeated_call
class GetResponse(msgspec.Struct, frozen=True, omit_defaults=True):
    """→ :class:`StoredResponse`; without ``conversation`` it has only the last turn."""

    number: int
    id: str
    conversation: bool = False
    key: str = ""


@repeated_call
class CancelResponse(msgspec.Struct, frozen=True, omit_defaults=True):
    """Cancel a background response → :class:`StoredResponse`. One that has ended does not change."""

    number: int
    id: str
    key: str = ""


@call_message(Repetition(done={Code.NOT_FOUND: no_report}))
class DeleteResponse(msgspec.Struct, frozen=True, omit_defaults=True):
    """Forget a response, and stop it if it runs → None. Its continuations keep their conversation."""

    number: int
    id: str
    key: str = ""
