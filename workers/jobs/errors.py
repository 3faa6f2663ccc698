"""The error of a source: a message for clients, and a detail for the log."""

from __future__ import annotations

import os
import re

from protocol.failures import NO_SPACE, Code

_CREDENTIALS = re.compile(r"//[^/@\s]+@")
_QUERY = re.compile(r"(https?://[^\s?'\"]+)\?[^\s'\"]*")
"""The query of an address, which may hold a signature."""
_LONGEST_DETAIL = 2000


class SourceError(Exception):
    """A source failed; the next one may be tried.

    ``str()`` is for the caller: it has no path, and no address with a password. ``detail`` is for the log.
    """

    def __init__(
        self,
        message: str,
        detail: str = "",
        *,
        offline: bool = False,
        absent: bool = False,
        forbidden: bool = False,
        unreachable: bool = False,
        full: bool = False,
        retry_after: float = 0.0,
        param: str = "checkpoint",
    ) -> None:
        """Take credentials out of the detail.

        ``offline``: no connection was tried, because of the setting. ``absent``: the source answered that it does not
        have it. ``forbidden``: the source has it, but does not give it to us. ``unreachable``: there was no connection
        to it. ``full``: the disk has no space for it. ``retry_after``: seconds after which it wants to be asked again, if it gave a time. ``param``: the field
        of a registration that names what is absent.
        """
        super().__init__(message)
        self.detail = _QUERY.sub(r"\1?***", _CREDENTIALS.sub("//***@", detail))[-_LONGEST_DETAIL:]
        self.offline = offline
        self.absent = absent
        self.forbidden = forbidden
        self.unreachable = unreachable
        self.full = full
        self.retry_after = retry_after
        self.param = param

    def of_part(self, part: str) -> SourceError:
        """Return the error with the part of the model that it is about; empty: the model itself."""
        if part:
            self.args, self.param = (f"its {part}: {self}",), "checkpoints"
        return self

    @property
    def code(self) -> Code:
        """The code of a download, or of a copy, that failed with it alone."""
        return Code.INSUFFICIENT_STORAGE if self.full else Code.DOWNLOAD_FAILED


def not_written(problem: OSError, detail: str = "") -> SourceError:
    """Return the error of a file that could not be written. ``detail``: instead of the text of the problem."""
    reason = os.strerror(problem.errno) if problem.errno else type(problem).__name__
    full = problem.errno in NO_SPACE
    return SourceError(f"a file could not be written: {reason}", detail or str(problem), full=full)
