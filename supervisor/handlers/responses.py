"""The calls of :mod:`protocol.messages.responses`: gateways store, read, cancel and delete responses."""

from __future__ import annotations

from dataclasses import dataclass
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


@dataclass(frozen=True)
class ResponseCalls:
    """Answers these calls."""

    loop: Loop
    responses: JournaledStore
    calls: GatewayCalls

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
        self.responses.add(ResponseKey(call.id, call.key), turn, call.previous, self.loop.now(), owner)
        self.calls.answer(peer, call.number, None)

    def _finish(self, peer: str, call: FinishResponse, payload: bytes) -> None:
        """Keep the end of a response that ran in the background."""
        self.responses.finish(call.id, payload, self.loop.now())
        self.calls.answer(peer, call.number, None)

    def _get(self, peer: str, call: GetResponse, _payload: bytes) -> None:
        """Answer with a response, or with the conversation up to it."""
        stored = self.responses.get(ResponseKey(call.id, call.key), self.loop.now(), whole=call.conversation)
        self.calls.answer(peer, call.number, stored)

    def _cancel(self, peer: str, call: CancelResponse, _payload: bytes) -> None:
        """Cancel a response, and tell the gateway that runs it."""
        now, key = self.loop.now(), ResponseKey(call.id, call.key)
        self._stop(self.responses.cancel(key, now))
        self.calls.answer(peer, call.number, self.responses.get(key, now))

    def _delete(self, peer: str, call: DeleteResponse, _payload: bytes) -> None:
        """Forget a response, and tell the gateway that runs it."""
        self._stop(self.responses.delete(ResponseKey(call.id, call.key), self.loop.now()))
        self.calls.answer(peer, call.number, None)

    def _stop(self, owner: Owner | None) -> None:
        if owner is not None:
            self.calls.refuse(owner.gateway, owner.number, _CANCELLED)
