"""The calls of :mod:`protocol.messages.responses`: gateways store, read, cancel and delete responses."""

from __future__ import annotations

from typing import Final

from protocol.failures import Code, Failure
from protocol.messages.responses import (
    CancelResponse,
    DeleteResponse,
    FinishResponse,
    GetResponse,
    StoredTurn,
    StoreResponse,
)
from protocol.runtime.loop import Loop
from protocol.wire import envelope
from supervisor.responses.journaled_store import JournaledStore
from supervisor.responses.response_store import Owner, ResponseKey
from supervisor.runtime.gateway_calls import GatewayCalls
from supervisor.runtime.handler_table import Handler

_CANCELLED: Final = Failure(Code.CANCELLED, "the response was cancelled")


class ResponseCalls:
    """Answers these calls."""

    def __init__(self, loop: Loop, responses: JournaledStore, calls: GatewayCalls) -> None:
        self._loop, self._responses, self._calls = loop, responses, calls

    def handlers(self) -> dict[type, Handler]:
        """Return the handlers of these messages."""
        return {
            StoreResponse: self._store,
            FinishResponse: self._finish,
            GetResponse: self._get,
            CancelResponse: self._cancel,
            DeleteResponse: self._delete,
        }

    def _store(self, peer: str, call: StoreResponse, payload: bytes) -> None:
        """Keep a response. The call for one that runs in the background stays open."""
        turn = envelope.unpack_payload(payload, StoredTurn)
        owner = Owner(peer, call.number) if call.running else None
        self._responses.add(ResponseKey(call.id, call.key), turn, call.previous, self._loop.now(), owner)
        self._calls.answer(peer, call.number, None)

    def _finish(self, peer: str, call: FinishResponse, payload: bytes) -> None:
        """Keep the end of a response that ran in the background."""
        self._responses.finish(call.id, payload, self._loop.now())
        self._calls.answer(peer, call.number, None)

    def _get(self, peer: str, call: GetResponse, _payload: bytes) -> None:
        """Answer with a response, or with the conversation up to it."""
        stored = self._responses.get(ResponseKey(call.id, call.key), self._loop.now(), whole=call.conversation)
        self._calls.answer(peer, call.number, stored)

    def _cancel(self, peer: str, call: CancelResponse, _payload: bytes) -> None:
        """Cancel a response, and tell the gateway that runs it."""
        now, key = self._loop.now(), ResponseKey(call.id, call.key)
        self._stop(self._responses.cancel(key, now))
        self._calls.answer(peer, call.number, self._responses.get(key, now))

    def _delete(self, peer: str, call: DeleteResponse, _payload: bytes) -> None:
        """Forget a response, and tell the gateway that runs it."""
        self._stop(self._responses.delete(ResponseKey(call.id, call.key), self._loop.now()))
        self._calls.answer(peer, call.number, None)

    def _stop(self, owner: Owner | None) -> None:
        if owner is not None:
            self._calls.refuse(owner.gateway, owner.number, _CANCELLED)
