"""How many bytes of request bodies a gateway process holds, and their common limit."""

from __future__ import annotations

from protocol.failures import Code, Failure

_RETRY_AFTER_S = 1.0


class BodyMemory:
    """Counts the bytes of all bodies from their arrival until their request is answered."""

    __slots__ = ("_limit", "used")

    def __init__(self, limit: int) -> None:
        """Allow ``limit`` bytes; a single body may always be as large as its route allows."""
        self._limit = limit
        self.used = 0

    def reserve(self, size: int, held: int) -> None:
        """Count ``size`` more bytes of a body that holds ``held`` already; raises ``overloaded`` (503)."""
        if self.used + size > self._limit and self.used > held:
            text = "too many request bodies are being received; try again"
            raise Failure(Code.OVERLOADED, text, retry_after=_RETRY_AFTER_S).raised()
        self.used += size

    def release(self, size: int) -> None:
        """Stop counting ``size`` bytes."""
        self.used -= size
