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
from protocol.wire import envelope
from supervisor.responses.response_store import Owner, ResponseKey
from supervisor.runtime.supervisor import Handler, Supervisor

_CANCELLED: Final = Failure(Code.CANCELLED, "the response was cancelled")


def store_response(supervisor: Supervisor, peer: str, call: StoreResponse, payload: bytes) -> None:
    """Keep a response. The call for one that runs in the background stays open."""
    turn = envelope.unpack_payload(payload, StoredTurn)
    owner = Owner(peer, call.number) if call.running else None
    supervisor.responses.add(ResponseKey(call.id, call.key), turn, call.previous, supervisor.loop.now(), owner)
    supervisor.calls.answer(peer, call.number, None)


def finish_response(supervisor: Supervisor, peer: str, call: FinishResponse, payload: bytes) -> None:
    """Keep the end of a response that ran in the background."""
    supervisor.responses.finish(call.id, payload, supervisor.loop.now())
    supervisor.calls.answer(peer, call.number, None)


def get_response(supervisor: Supervisor, peer: str, call: GetResponse, _payload: bytes) -> None:
    """Answer with a response, or with the conversation up to it."""
    stored = supervisor.responses.get(ResponseKey(call.id, call.key), supervisor.loop.now(), whole=call.conversation)
    supervisor.calls.answer(peer, call.number, stored)


def cancel_response(supervisor: Supervisor, peer: str, call: CancelResponse, _payload: bytes) -> None:
    """Cancel a response, and tell the gateway that runs it."""
    now, key = supervisor.loop.now(), ResponseKey(call.id, call.key)
    _stop(supervisor, supervisor.responses.cancel(key, now))
    supervisor.calls.answer(peer, call.number, supervisor.responses.get(key, now))


def delete_response(supervisor: Supervisor, peer: str, call: DeleteResponse, _payload: bytes) -> None:
    """Forget a response, and tell the gateway that runs it."""
    _stop(supervisor, supervisor.responses.delete(ResponseKey(call.id, call.key), supervisor.loop.now()))
    supervisor.calls.answer(peer, call.number, None)


def _stop(supervisor: Supervisor, owner: Owner | None) -> None:
    if owner is not None:
        supervisor.calls.refuse(owner.gateway, owner.number, _CANCELLED)


HANDLERS: Final[dict[type, Handler]] = {
    StoreResponse: store_response,
    FinishResponse: finish_response,
    GetResponse: get_response,
    CancelResponse: cancel_response,
    DeleteResponse: delete_response,
}
