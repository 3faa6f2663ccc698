"""The stored responses: bounded in number, bytes and age. Pure: no socket, and the caller has the clock.

Invariants:

* The bounds hold after every method. The oldest responses of the API key that has most are evicted, so that one key
  does not evict what others have stored. Running ones are not evicted.
* A response that has ended no longer changes.
* What is evicted or deleted stays in the conversations of later responses.
"""

from __future__ import annotations

from typing import NamedTuple

from protocol.failures import Code, Failure, LemonbusError
from protocol.messages.responses import ResponseState, StoredResponse, StoredTurn
from supervisor.responses.conversation import Turn, Turns, conversation, turn_size


class StoreLimits(NamedTuple):
    """Bounds of the store; sizes in bytes, times in seconds."""

    entries: int
    bytes: int
    ttl: float

    @property
    def entry_bytes(self) -> int:
        """Bytes of one response with its input: a single one must not evict all others."""
        return self.bytes // 8


class Owner(NamedTuple):
    """The gateway that runs a background response, and the number of its open call."""

    gateway: str
    number: int


class ResponseKey(NamedTuple):
    """What a client must have to use a response."""

    id: str
    api_key: str = ""
    """Name of the API key that it was stored with. It does not exist for other keys."""


class _Entry:
    """One stored response."""

    __slots__ = ("api_key", "created", "owner", "state", "turn")

    def __init__(self, turn: Turn, api_key: str, created: float, owner: Owner | None) -> None:
        self.turn = turn
        self.api_key = api_key
        self.created = created
        self.owner = owner
        """While it runs."""
        self.state = ResponseState.RUNNING if owner else ResponseState.ENDED

    def end(self, state: ResponseState) -> Owner | None:
        """Change to a final state unless it has one; return its former owner."""
        owner, self.owner = self.owner, None
        if owner is not None:
            self.state = state
        return owner


class ResponseStore:
    """Responses by id, oldest first."""

    def __init__(self, limits: StoreLimits) -> None:
        """Begin empty."""
        self._limits = limits
        self._entries: dict[str, _Entry] = {}
        self._by_key: dict[str, dict[str, _Entry]] = {}
        """The same by the API key that they were stored with."""
        self._turns = Turns()

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def size(self) -> int:
        """Bytes of everything that is kept."""
        return self._turns.size

    def add(self, key: ResponseKey, stored: StoredTurn, previous: str, now: float, owner: Owner | None = None) -> None:
        """Keep a response. With an ``owner`` it still runs.

        Raises ``body_too_large`` if it is too large, ``conflict`` if its id is taken, ``not_found`` if ``previous`` is
        gone, ``overloaded`` if only running ones are kept.
        """
        self.expire(now)
        if turn_size(stored) > self._limits.entry_bytes:
            message = (
                f"the response with its input is larger than {self._limits.entry_bytes} bytes and cannot be stored"
            )
            raise Failure(Code.TOO_LARGE, message, param="store").raised()
        if key.id in self._entries:
            raise Failure(Code.CONFLICT, "a response with this id exists").raised()
        before = self._entry(ResponseKey(previous, key.api_key)).turn if previous else None
        entry = _Entry(self._turns.add(stored, before, key.api_key), key.api_key, now, owner)
        self._entries[key.id] = self._by_key.setdefault(key.api_key, {})[key.id] = entry
        try:
            self._evict_oldest(entry)
        except LemonbusError:
            self._remove(key.id)
            raise

    def finish(self, response_id: str, response: bytes, now: float) -> None:
        """Give a running response its final JSON. Does nothing if it was deleted or has already ended.

        If its final JSON does not fit, it is lost.
        """
        self.expire(now)
        entry = self._entries.get(response_id)
        if entry is None or entry.owner is None:
            return
        begun = entry.turn.stored
        if turn_size(StoredTurn(begun.input, response)) > self._limits.entry_bytes:
            entry.end(ResponseState.LOST)
            return
        self._turns.replace(entry.turn, response)
        try:
            self._evict_oldest(entry)
        except LemonbusError:
            self._turns.replace(entry.turn, begun.response)
            entry.end(ResponseState.LOST)
        else:
            entry.end(ResponseState.ENDED)

    def get(self, key: ResponseKey, now: float, *, whole: bool = False) -> StoredResponse:
        """Return a response with the ``whole`` conversation, or with only its own turn.

        Raises ``not_found``, or ``body_too_large`` if the conversation is too large for one message.
        """
        self.expire(now)
        entry = self._entry(key)
        if whole and entry.turn.total > self._limits.entry_bytes:
            message = f"the conversation is larger than {self._limits.entry_bytes} bytes: begin a new one"
            raise Failure(Code.TOO_LARGE, message, param="previous_response_id").raised()
        return StoredResponse(entry.state, conversation(entry.turn) if whole else [entry.turn.stored])

    def cancel(self, key: ResponseKey, now: float) -> Owner | None:
        """Cancel a response; return what runs it, None if it has ended. Raises ``not_found``."""
        self.expire(now)
        return self._entry(key).end(ResponseState.CANCELLED)

    def delete(self, key: ResponseKey, now: float) -> Owner | None:
        """Forget a response; return what runs it, None if it has ended. Raises ``not_found``."""
        self.expire(now)
        owner = self._entry(key).owner
        self._remove(key.id)
        return owner

    def call_abandoned(self, owner: Owner) -> None:
        """Note that a gateway has given up what it ran."""
        for entry in self._entries.values():
            if entry.owner == owner:
                entry.end(ResponseState.LOST)

    def gateway_gone(self, gateway: str) -> None:
        """Note that a gateway process has ended, and with it what it ran."""
        for entry in self._entries.values():
            if entry.owner is not None and entry.owner.gateway == gateway:
                entry.end(ResponseState.LOST)

    def expire(self, now: float) -> None:
        """Forget what is older than the time to live."""
        for response_id, entry in list(self._entries.items()):
            if now - entry.created <= self._limits.ttl:
                return
            if entry.owner is None:
                self._remove(response_id)

    def _entry(self, key: ResponseKey) -> _Entry:
        entry = self._entries.get(key.id)
        if entry is None or entry.api_key != key.api_key:
            message = f"Response {key.id!r} is not stored: it is unknown, was deleted, or was replaced by newer ones"
            raise Failure(Code.NOT_FOUND, message, param="response_id", quotes=True).raised()
        return entry

    def _evict_oldest(self, new: _Entry | None) -> None:
        """Evict responses until the bounds hold; raises ``overloaded`` if only running ones, or those of keys with less, are left."""
        while (too_many := len(self._entries) > self._limits.entries) or self._turns.size > self._limits.bytes:
            amounts = {key: len(own) if too_many else self._turns.sizes[key] for key, own in self._by_key.items()}
            least = amounts[new.api_key] if new is not None else 0
            oldest = ""
            for api_key in sorted(
                (key for key in amounts if amounts[key] >= least), key=amounts.__getitem__, reverse=True
            ):
                own = self._by_key[api_key].items()
                oldest = oldest or next((name for name, each in own if each.owner is None and each is not new), "")
            if not oldest:
                reason = "the stored responses use all the memory that they may have"
                raise Failure(Code.OVERLOADED, reason, retry_after=1).raised()
            self._remove(oldest)

    def _remove(self, response_id: str) -> None:
        entry = self._entries.pop(response_id)
        of_key = self._by_key[entry.api_key]
        del of_key[response_id]
        if not of_key:
            del self._by_key[entry.api_key]
        self._turns.release(entry.turn)
