"""How many bytes of request bodies a gateway process holds, their common limit, and who gives way when it is reached."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable

from protocol.failures import Code, Failure

OVERLOADED = Failure(Code.OVERLOADED, "too many request bodies are being received; try again", retry_after=1.0)


class HeldBody:
    """The bytes of one request's body."""

    __slots__ = ("abort", "caller", "given_up", "size")

    def __init__(self, caller: str) -> None:
        """Hold nothing yet. ``caller``: whose body it is: a key's name, or an address."""
        self.caller = caller
        self.size = 0
        self.abort: Callable[[Failure], None] | None = None
        """Ends the wait for the rest of it; None when it is not being received."""
        self.given_up = False
        """Whether it gave way to another caller's body."""


class BodyMemory:
    """Counts the bytes of all bodies from their arrival until their request is answered.

    When the limit is reached, a caller takes the place of bodies that are still being received from a caller who holds
    more. So no caller can fill the memory for all others with bodies that never end.
    """

    __slots__ = ("_bodies", "_callers", "_limit", "used")

    def __init__(self, limit: int) -> None:
        """Allow ``limit`` bytes. A single body may always be as large as its route allows."""
        self._limit = limit
        self._bodies: dict[HeldBody, None] = {}
        self._callers: defaultdict[str, int] = defaultdict(int)
        self.used = 0

    def reserve(self, body: HeldBody, size: int) -> None:
        """Count ``size`` more bytes of a body; raises ``overloaded`` (503)."""
        if body.given_up:
            raise OVERLOADED.raised()
        if self.used + size > self._limit and self.used > body.size:
            self._free(body, size)
        self._bodies[body] = None
        body.size += size
        self._callers[body.caller] += size
        self.used += size

    def release(self, body: HeldBody) -> None:
        """Stop counting the bytes of a body."""
        self._bodies.pop(body, None)
        self._callers[body.caller] -= body.size
        if not self._callers[body.caller]:
            del self._callers[body.caller]
        self.used -= body.size
        body.size = 0

    def _free(self, body: HeldBody, size: int) -> None:
        """Give up bodies that are being received from callers who hold more than ``body``'s caller would."""
        share = self._callers[body.caller] + size
        while self.used + size > self._limit and self.used > body.size:
            receiving = [each for each in self._bodies if each.abort and self._callers[each.caller] > share]
            largest = max(receiving, key=lambda each: (self._callers[each.caller], each.size), default=None)
            if largest is None or largest.abort is None:
                raise OVERLOADED.raised()
            largest.given_up = True
            largest.abort(OVERLOADED)
            self.release(largest)
