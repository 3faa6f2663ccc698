"""The stored responses, with a journal from which the next supervisor restores them.

The store is a function of all changes and their times, so the journal is exactly these. When it has become much larger
than the store, it is replaced by a new one that leads to the same store.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Final

from protocol.failures import LemonbusError
from protocol.messages.responses import ResponseState, StoredTurn
from protocol.runtime import logs
from supervisor.persistence.memfd_journal import MemfdJournal
from supervisor.responses.conversation import Turn
from supervisor.responses.journal import (
    RECORDS,
    Record,
    ResponseAbandoned,
    ResponseAdded,
    ResponseCancelled,
    ResponseDeleted,
    ResponseFinished,
)
from supervisor.responses.response_store import Owner, ResponseKey, ResponseStore, StoreLimits

_SPARE_BYTES: Final = 1024 * 1024
_UNBOUNDED: Final = StoreLimits(1 << 60, 1 << 60, float("inf"))

log = logs.get_logger()


class JournaledStore(ResponseStore):
    """A store that is recorded while it has a journal."""

    def __init__(self, limits: StoreLimits) -> None:
        """Begin empty and without a journal."""
        super().__init__(limits)
        self._journal: MemfdJournal[Record] | None = None
        self._hold: Callable[[int], None] = lambda _: None

    def use_journal(self, descriptor: int, hold: Callable[[int], None]) -> None:
        """Replay a journal, and continue it.

        ``descriptor``: -1 for a new one. ``hold`` gets the descriptor of each new one.
        """
        self._hold = hold
        journal = MemfdJournal("responses", RECORDS, descriptor)
        limits, self._limits = self._limits, _UNBOUNDED  # replaying a full journal must not evict
        for record in journal.read():
            with contextlib.suppress(LemonbusError):  # as it was refused then
                self._repeat(record)
        self._limits = limits
        with contextlib.suppress(LemonbusError):
            self._evict_oldest(None)
        self._journal = journal
        if descriptor < 0:
            hold(journal.descriptor)

    def owners(self) -> set[str]:
        """Return the gateways that run responses."""
        return {entry.owner.gateway for entry in self._entries.values() if entry.owner is not None}

    # What changes the store

    def add(self, key: ResponseKey, stored: StoredTurn, previous: str, now: float, owner: Owner | None = None) -> None:
        """See :meth:`ResponseStore.add`."""
        super().add(key, stored, previous, now, owner)
        self._write(_added(key, stored, previous, now, owner))

    def finish(self, response_id: str, response: bytes, now: float) -> None:
        """See :meth:`ResponseStore.finish`."""
        entry = self._entries.get(response_id)
        owner = entry.owner if entry is not None else None
        super().finish(response_id, response, now)
        if entry is not None and owner is not None:
            ended = entry.state is ResponseState.ENDED
            self._write(ResponseFinished(response_id, response, now) if ended else ResponseAbandoned(*owner))

    def cancel(self, key: ResponseKey, now: float) -> Owner | None:
        """See :meth:`ResponseStore.cancel`."""
        owner = super().cancel(key, now)
        self._write(ResponseCancelled(*key, now))
        return owner

    def delete(self, key: ResponseKey, now: float) -> Owner | None:
        """See :meth:`ResponseStore.delete`."""
        owner = super().delete(key, now)
        self._write(ResponseDeleted(*key, now))
        return owner

    def call_abandoned(self, owner: Owner) -> None:
        """See :meth:`ResponseStore.call_abandoned`."""
        if any(entry.owner == owner for entry in self._entries.values()):
            super().call_abandoned(owner)
            self._write(ResponseAbandoned(*owner))

    def gateway_gone(self, gateway: str) -> None:
        """See :meth:`ResponseStore.gateway_gone`."""
        if gateway in self.owners():
            super().gateway_gone(gateway)
            self._write(ResponseAbandoned(gateway))

    # The journal

    def _repeat(self, record: Record) -> None:
        match record:
            case ResponseAdded(response_id, api_key, previous, input_, response, at, gateway, number):
                owner = Owner(gateway, number) if gateway else None
                super().add(ResponseKey(response_id, api_key), StoredTurn(input_, response), previous, at, owner)
            case ResponseFinished(response_id, response, at):
                super().finish(response_id, response, at)
            case ResponseCancelled(response_id, api_key, at):
                super().cancel(ResponseKey(response_id, api_key), at)
            case ResponseDeleted(response_id, api_key, at):
                super().delete(ResponseKey(response_id, api_key), at)
            case ResponseAbandoned(gateway, 0):
                super().gateway_gone(gateway)
            case ResponseAbandoned(gateway, number):
                super().call_abandoned(Owner(gateway, number))

    def _write(self, record: Record) -> None:
        journal = self._journal
        if journal is None:
            return
        try:
            journal.append(record)
            if journal.size > 2 * self.size + _SPARE_BYTES:
                self._journal = journal.rewritten(self._records())
                self._hold(self._journal.descriptor)
                journal.close()
        except OSError as problem:
            log.error("stored responses will be lost with this supervisor", reason=str(problem))  # noqa: TRY400 - no bug
            self._journal = None

    def _records(self) -> Iterator[Record]:
        """Yield what leads to this store.

        Turns that only later ones refer to are added under other names, then deleted.
        """
        names = {id(entry.turn): response_id for response_id, entry in self._entries.items()}
        unnamed: list[ResponseDeleted] = []

        def previous(turn: Turn) -> str:
            return names[id(turn.previous)] if turn.previous is not None else ""

        for response_id, entry in self._entries.items():
            for turn in _earlier_turns(entry.turn):
                if id(turn) not in names:
                    name = names[id(turn)] = f"-{len(unnamed)}"
                    unnamed.append(ResponseDeleted(name, entry.api_key, entry.created))
                    yield _added(ResponseKey(name, entry.api_key), turn.stored, previous(turn), entry.created, None)
            owner = entry.owner or (Owner("-", 1) if entry.state is not ResponseState.ENDED else Owner("", 0))
            key = ResponseKey(response_id, entry.api_key)
            yield _added(key, entry.turn.stored, previous(entry.turn), entry.created, owner)
            if entry.state is ResponseState.CANCELLED:
                yield ResponseCancelled(response_id, entry.api_key, entry.created)
            elif entry.state is ResponseState.LOST:
                yield ResponseAbandoned(*owner)
        yield from unnamed


def _earlier_turns(turn: Turn) -> list[Turn]:
    """Return the turns before a turn, oldest first."""
    found = []
    at = turn.previous
    while at is not None:
        found.append(at)
        at = at.previous
    return found[::-1]


def _added(key: ResponseKey, stored: StoredTurn, previous: str, at: float, owner: Owner | None) -> ResponseAdded:
    gateway, number = owner or ("", 0)
    return ResponseAdded(
        id=key.id,
        api_key=key.api_key,
        previous=previous,
        input=stored.input,
        response=stored.response,
        at=at,
        gateway=gateway,
        number=number,
    )
