"""The changes to the stored responses, in memory that outlives a supervisor because the keeper holds its descriptor.

A journal is a memory file (``memfd``): nothing of it is on a disk, and it disappears with the server. Each record is
its length in four bytes and a msgpack array. An incomplete record, left by a dying supervisor, ends the journal.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from typing import Final

import msgspec

_LENGTH: Final = 4


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

_encoder: Final = msgspec.msgpack.Encoder()
_decoder: Final = msgspec.msgpack.Decoder(Record)


class Journal:
    """A memory file with records."""

    def __init__(self, descriptor: int = -1) -> None:
        """Use a journal of an earlier supervisor, or make an empty one."""
        self.descriptor = descriptor if descriptor >= 0 else os.memfd_create("responses", os.MFD_CLOEXEC)
        self.size = os.fstat(self.descriptor).st_size
        """Bytes of all records."""

    def read(self) -> Iterator[Record]:
        """Yield all records, and cut off what follows the last complete one."""
        end = 0
        while len(head := os.pread(self.descriptor, _LENGTH, end)) == _LENGTH:
            length = int.from_bytes(head, "big")
            try:
                record = _decoder.decode(os.pread(self.descriptor, length, end + _LENGTH))
            except (msgspec.MsgspecError, ValueError):
                break
            end += _LENGTH + length
            yield record
        os.ftruncate(self.descriptor, end)
        self.size = end

    def append(self, record: Record) -> None:
        """Add a record; raises ``OSError`` if there is no memory for it."""
        data = _encoder.encode(record)
        data = len(data).to_bytes(_LENGTH, "big") + data
        written = 0
        while written < len(data):
            written += os.pwrite(self.descriptor, memoryview(data)[written:], self.size + written)
        self.size += len(data)

    def rewritten(self, records: Iterable[Record]) -> Journal:
        """Return a new journal with these records. This one does not change."""
        new = Journal()
        for record in records:
            new.append(record)
        return new

    def close(self) -> None:
        """Close the descriptor. The records live on as long as another process has one."""
        os.close(self.descriptor)
