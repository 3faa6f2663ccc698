"""The results of a batch: appended to two files, one line each, and never written twice.

A result counts when its line is whole. A process that was killed may leave half a line, which is cut off.
"""

from __future__ import annotations

import os
import secrets
from pathlib import Path
from typing import Any, Final

import msgspec

from protocol.failures import DECODE_ERRORS
from protocol.runtime import logs
from workers.jobs.batch_run.answers import LineAnswer
from workers.jobs.batch_run.input_lines import BatchLine

CANCELLED: Final = "batch_cancelled"
EXPIRED: Final = "batch_expired"
_STEP: Final = 64 * 1024


class _ResultId(msgspec.Struct):
    custom_id: str


class ResultFile:
    """One of the files."""

    def __init__(self, path: Path) -> None:
        """Continue the file, after its last whole line. Raises OSError."""
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self._end = self._last_line_end()
        os.ftruncate(self._fd, self._end)
        self._path = path
        self._written = False
        self._closed = False

    def _last_line_end(self) -> int:
        end = os.lseek(self._fd, 0, os.SEEK_END)
        while end:
            start = max(0, end - _STEP)
            found = os.pread(self._fd, end - start, start).rfind(b"\n")
            if found >= 0:
                return start + found + 1
            end = start
        return 0

    def ids(self) -> set[str]:
        """Return the ids of the lines that have a result here. A line that the disk has damaged is cut off, with all that follow."""
        decode, found, end = msgspec.json.Decoder(_ResultId).decode, set(), 0
        with self._path.open("rb") as file:
            for line in file:
                try:
                    found.add(decode(line).custom_id)
                except DECODE_ERRORS as problem:
                    logs.get_logger().error("results damaged", path=str(self._path), at_byte=end, reason=str(problem))
                    os.ftruncate(self._fd, end)
                    self._end = end
                    break
                end += len(line)
        return found

    def append(self, line: bytes) -> None:
        """Write a line; raises OSError, and then nothing of it counts."""
        data = memoryview(line + b"\n")
        at = self._end
        try:
            while data:
                written = os.pwrite(self._fd, data, at)
                at, data = at + written, data[written:]
        except OSError:
            os.ftruncate(self._fd, self._end)  # the next line may be shorter than the part that was written
            raise
        self._end = at
        self._written = True

    def sync(self) -> None:
        """Wait until everything is on the disk; raises OSError."""
        if self._written:
            os.fdatasync(self._fd)
            self._written = False

    def close(self) -> int:
        """Wait for the disk, close it, and return its size; may be repeated. Raises OSError, and then it is still open."""
        if not self._closed:
            self.sync()
            self.discard()
        return self._end

    def discard(self) -> None:
        """Close it, whether or not everything is on the disk; may be repeated."""
        if not self._closed:
            self._closed = True
            os.close(self._fd)
            self._fd = -1


def result_of(line: BatchLine, answer: LineAnswer) -> bytes:
    """Return the line of an answer in OpenAI's form."""
    try:
        msgspec.json.decode(answer.body)
        body: Any = msgspec.Raw(answer.body)
    except DECODE_ERRORS:
        body = answer.body.decode("utf-8", "replace")
    response = {"status_code": answer.status, "request_id": answer.request_id, "body": body}
    return _encoded(line.custom_id, response, None)


def unsent(line: BatchLine, code: str) -> bytes:
    """Return the line of a request that was not sent. ``code``: :data:`CANCELLED` or :data:`EXPIRED`."""
    why = "the batch was cancelled" if code == CANCELLED else "the time of the batch was over"
    return _encoded(line.custom_id, None, {"code": code, "message": f"the request was not run: {why}"})


def _encoded(custom_id: str, response: Any, error: Any) -> bytes:
    request_id = f"batch_req_{secrets.token_hex(12)}"
    found = {"id": request_id, "custom_id": custom_id, "response": response, "error": error}
    return msgspec.json.encode(found).replace(b"\n", b" ")
