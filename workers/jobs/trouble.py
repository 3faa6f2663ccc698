"""Why a source gave nothing: what the caller may read, and what only the log may."""

from __future__ import annotations

import re

_CREDENTIALS = re.compile(r"//[^/@\s]+@")
_LONGEST_DETAIL = 2000


class SourceError(Exception):
    """A source failed; the next one may be tried.

    ``str()`` is for the caller: no path, no address with a password in it.  ``detail`` is for the log.
    """

    def __init__(self, message: str, detail: str = "", offline: bool = False) -> None:
        """Take credentials out of the detail; ``offline``: it was not even tried, as we were told."""
        super().__init__(message)
        self.detail = _CREDENTIALS.sub("//***@", detail)[-_LONGEST_DETAIL:]
        self.offline = offline
