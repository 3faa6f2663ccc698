"""A journal in memory that outlives a supervisor, because the keeper holds its descriptor.

It is a memory file (``memfd``): nothing of it is on a disk, and it disappears with the server. Each record is its length
in four bytes and a msgpack value. An incomplete record, left by a dying supervisor, ends the journal.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Iterable, Iterator
from typing import Final, Generic, TypeVar

import msgspec

R = TypeVar("R")
_LENGTH: Final = 4
_encoder: Final = msgspec.msgpack.Encoder()


class MemfdJournal(Generic[R]):
    """A memory file with records. The records live on as long as another process has the descriptor."""

    def __init__(self, name: str, records: msgspec.msgpack.Decoder[R], descriptor: int = -1) -> None:
        """Use a journal of an earlier supervisor, or make an empty one. ``name``: for ``/proc``."""
        self._name, self._records = name, records
        self.descriptor = descriptor if descriptor >= 0 else os.memfd_create(name, os.MFD_CLOEXEC)
        self.close = weakref.finalize(self, os.close, self.descriptor)
        """Closes the descriptor; so does the end of this object."""
        self.size = os.fstat(self.descriptor).st_size
        """Bytes of all records."""

    def read(self) -> Iterator[R]:
        """Yield all records, and cut off what follows the last complete one."""
        end = 0
        while len(head := os.pread(self.descriptor, _LENGTH, end)) == _LENGTH:
            length = int.from_bytes(head, "big")
            try:
                record = self._records.decode(os.pread(self.descriptor, length, end + _LENGTH))
            except (msgspec.MsgspecError, ValueError):
                break
            end += _LENGTH + length
            yield record
        os.ftruncate(self.descriptor, end)
        self.size = end

    def append(self, record: R) -> None:
        """Add a record; raises ``OSError`` if there is no memory for it."""
        data = _encoder.encode(record)
        data = len(data).to_bytes(_LENGTH, "big") + data
        end = self.size
        while data:
            written = os.pwrite(self.descriptor, data, end)
            end, data = end + written, data[written:]
        self.size = end

    def rewritten(self, records: Iterable[R]) -> MemfdJournal[R]:
        """Return a new journal with these records. This one does not change."""
        new = MemfdJournal(self._name, self._records)
        for record in records:
            new.append(record)
        return new
