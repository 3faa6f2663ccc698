"""Responses that the supervisor keeps for OpenAI's Responses API, because each request may reach another gateway process.

All are calls of a gateway (``protocol/messages/calls.py``); the docstring names the report. The JSON in them is the gateway's: no
other process decodes it.  ``key`` is the digest of the client's API key, empty if the server has no keys: to others a response does
not exist.
"""

from __future__ import annotations

import enum

import msgspec

from protocol.wire.envelope import control_message


class ResponseState(enum.StrEnum):
    """What has become of a stored response."""

    RUNNING = "running"
    ENDED = "ended"
    CANCELLED = "cancelled"
    """A client cancelled it while it ran."""
    LOST = "lost"
    """The gateway process that ran it has ended, or given it up."""


class StoredTurn(msgspec.Struct, frozen=True):
    """One request and its response."""

    input: bytes
    """JSON: the list of the request's own items."""
    response: bytes
    """JSON: the ``response`` object, with its output."""


class StoredResponse(msgspec.Struct, frozen=True):
    """A stored response, and the conversation that it ends, oldest turn first."""

    state: ResponseState
    turns: list[StoredTurn]


@control_message
class StoreResponse(msgspec.Struct, frozen=True, omit_defaults=True):
    """Keep a response; the payload is its :class:`StoredTurn` → None.

    With ``running`` the response is one that goes on in the background. The call stays open then: when the response is
    cancelled, ``Refused`` with ``cancelled`` follows. ``AbandonCall`` of a call whose response still runs makes it ``LOST``.
    """

    number: int
    id: str
    previous: str = ""
    """Id of the stored response that this one continues."""
    running: bool = False
    key: str = ""


@control_message
class FinishResponse(msgspec.Struct, frozen=True):
    """A response that ran in the background has ended; the payload is its JSON → None, also if it is no longer wanted."""

    number: int
    id: str


@control_message
class GetResponse(msgspec.Struct, frozen=True, omit_defaults=True):
    """→ :class:`StoredResponse`; without ``conversation`` it has the last turn alone."""

    number: int
    id: str
    conversation: bool = False
    key: str = ""


@control_message
class CancelResponse(msgspec.Struct, frozen=True, omit_defaults=True):
    """Cancel a response that runs in the background; no change for one that has ended → :class:`StoredResponse`."""

    number: int
    id: str
    key: str = ""


@control_message
class DeleteResponse(msgspec.Struct, frozen=True, omit_defaults=True):
    """Forget a response, and stop it if it runs → None. What continues it keeps its conversation."""

    number: int
    id: str
    key: str = ""
