"""The records of the changes to the stored responses, for the journal that outlives a supervisor."""

from __future__ import annotations

from typing import Final

import msgspec


class ResponseAdded(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """A response was stored at ``at``, by the monotonic clock of the keeper's machine, which all its supervisors share.

    ``gateway`` and ``number``: what runs it; empty if it has ended.
    """

    id: str
    api_key: str
    previous: str
    input: bytes
    response: bytes
    at: float
    gateway: str = ""
    number: int = 0


class ResponseFinished(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """A response that ran has its final JSON."""

    id: str
    response: bytes
    at: float


class ResponseCancelled(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """A response was cancelled."""

    id: str
    api_key: str
    at: float


class ResponseDeleted(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """A response was deleted."""

    id: str
    api_key: str
    at: float


class ResponseAbandoned(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """A gateway has given up what it ran under this number; 0: everything it ran, because it has ended."""

    gateway: str
    number: int = 0


Record = ResponseAdded | ResponseFinished | ResponseCancelled | ResponseDeleted | ResponseAbandoned

RECORDS: Final = msgspec.msgpack.Decoder(Record)
