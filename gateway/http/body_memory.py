"""How many bytes of request bodies a gateway process holds, their common limit, and which bodies are dropped at the limit."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

import msgspec

from protocol.failures import Code, Failure

OVERLOADED: Final = Failure(Code.OVERLOADED, "too many request bodies are being received; try again", retry_after=1.0)
_LEAST_WAIT_S: Final = 2.0
"""Seconds that a body may take to arrive while others get no connection."""


class HeldBody(msgspec.Struct, eq=False):
    """The bytes of one request's body."""

    caller: str
    """Its owner, as a key's name or an address."""
    most: float = 1.0
    """The part of the memory that all bodies of the caller may take."""
    size: int = 0
    began: float = 0.0
    """When the wait for it began, in monotonic seconds."""
    abort: Callable[[Failure], None] | None = None
    """Ends the wait for the rest of it; None while nothing waits."""
    given_up: bool = False
    """Whether it was dropped for another caller."""


class BodyMemory:
    """Counts the bytes of all bodies from their arrival until their request is answered.

    At the limit, a caller replaces bodies that are still being received from a caller who holds more. So no caller can
    fill the memory with bodies that never end.
    """

    __slots__ = ("_callers", "_limit", "_receiving", "used")

    def __init__(self, limit: int) -> None:
        """Allow ``limit`` bytes. A single body may always be as large as its route allows."""
        self._limit = limit
        self._receiving: dict[str, dict[HeldBody, None]] = {}
        """Caller → incomplete bodies, oldest first."""
        self._callers: dict[str, int] = {}
        self.used = 0

    def begin(self, body: HeldBody, abort: Callable[[Failure], None]) -> None:
        """Note that a body is waited for until :meth:`end`. ``abort`` ends the wait, and may be called from the hub."""
        body.began, body.abort = time.monotonic(), abort
        self._receiving.setdefault(body.caller, {})[body] = None

    def end(self, body: HeldBody) -> None:
        """Note that a body is no longer waited for."""
        self._forget(body)
        body.abort = None

    def end_all(self, failure: Failure) -> None:
        """End the waits for all bodies with a failure."""
        for bodies in self._receiving.values():
            for body in bodies:
                if body.abort is not None:
                    body.abort(failure)

    def _forget(self, body: HeldBody) -> None:
        bodies = self._receiving.get(body.caller, {})
        bodies.pop(body, None)
        if not bodies:
            self._receiving.pop(body.caller, None)

    def reserve(self, body: HeldBody, size: int) -> None:
        """Count ``size`` more bytes of a body; raises ``overloaded`` (503)."""
        held = self._callers.get(body.caller, 0)
        if body.given_up or (held + size > self._limit * body.most and held > body.size):
            raise OVERLOADED.raised()
        if self.used + size > self._limit and self.used > body.size:
            self._free(body, size)
            held = self._callers.get(body.caller, 0)
        body.size += size
        self._callers[body.caller] = held + size
        self.used += size

    def release(self, body: HeldBody, kept: int = 0) -> None:
        """Stop counting the bytes of a body, but for ``kept`` of them."""
        size, body.size = body.size - kept, kept
        self.used -= size
        left = self._callers.pop(body.caller, 0) - size
        if left:
            self._callers[body.caller] = left

    def give_up_oldest(self) -> bool:
        """Drop the oldest incomplete body of the caller with most of them; return whether there was one."""
        bodies = max(self._receiving.values(), key=len, default={})
        oldest = next(iter(bodies), None)
        if oldest is None or time.monotonic() - oldest.began < _LEAST_WAIT_S:
            return False
        self._give_up(oldest)
        return True

    def _free(self, body: HeldBody, size: int) -> None:
        """Drop bodies that are being received from callers who hold more than ``body``'s caller would."""
        share = self._held_by(body.caller) + size
        while self.used + size > self._limit and self.used > body.size:
            caller = max(self._receiving, key=self._held_by, default="")
            if self._held_by(caller) <= share:
                raise OVERLOADED.raised()
            self._give_up(max(self._receiving[caller], key=lambda each: each.size))

    def _held_by(self, caller: str) -> int:
        return self._callers.get(caller, 0)

    def _give_up(self, body: HeldBody) -> None:
        body.given_up = True
        if body.abort is not None:
            body.abort(OVERLOADED)
        self._forget(body)
        self.release(body)
