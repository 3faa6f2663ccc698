"""The supervisor's store of responses, as the routes use it."""

from __future__ import annotations

from types import NoneType
from typing import Any, Final

from gateway.api.responses import stored_form
from gateway.api.responses.input.input_items import Item
from gateway.bus.session import SupervisorSession
from gateway.http.request_context import request_context
from protocol.failures import CLIENT_LEFT_CODES, Code, Failure, LemonbusError, invalid
from protocol.messages.responses import (
    CancelResponse,
    DeleteResponse,
    GetResponse,
    StoredResponse,
    StoredTurn,
    StoreResponse,
)
from protocol.runtime import logs
from protocol.wire import envelope

STORE_TIMEOUT_S: Final = 5.0
"""If a response could not be stored within this time, the answer says that it is not stored."""
Environ = dict[str, Any]


def owner_of(env: Environ) -> str:
    """Return the owner of a response: the digest of the request's API key, empty if the server has no keys.

    A name may be given to another key after the first was revoked, and the new key does not own the old one's
    responses.
    """
    key = request_context(env).api_key
    return key.sha256 if key else ""


class StoreClient:
    """The supervisor's store as the routes use it. ``env`` is ``req.env``: the wait ends if the client hangs up."""

    def __init__(self, session: SupervisorSession) -> None:
        """Call the supervisor through ``session``."""
        self._session = session

    def keep(self, env: Environ, response_id: str, turn: StoredTurn, previous: str) -> bool:
        """Store a response, and return whether that succeeded. Raises ``LemonbusError`` only if the client has left."""
        payload = envelope.pack_payload(turn)
        reason = "the supervisor did not answer in time"
        try:
            with self._session.start_call(
                env, lambda number: StoreResponse(number, response_id, previous, key=owner_of(env)), payload=payload
            ) as call:
                if call.next(STORE_TIMEOUT_S) is not None:
                    return True
        except LemonbusError as problem:
            if problem.failure.code in CLIENT_LEFT_CODES:
                raise
            reason = problem.failure.loggable_message
        logs.get_logger().warning("a response is not stored", response=response_id, reason=reason)
        return False

    def conversation(self, env: Environ, response_id: str) -> list[Item]:
        """Return all items up to the end of a response; raises ``invalid_request`` if it cannot be continued."""
        try:
            stored = self.get(env, response_id, conversation=True)
        except LemonbusError as problem:
            if problem.failure.code is not Code.NOT_FOUND:
                raise
            message = f"`previous_response_id`: {problem.failure.message}"
            raise Failure(Code.INVALID_REQUEST, message, param="previous_response_id", quotes=True).raised() from None
        status = stored_form.shown(stored)["status"]
        if status not in ("completed", "incomplete"):
            raise invalid(
                f"the previous response is {status}: only a response that has ended can be continued",
                "previous_response_id",
            )
        return stored_form.items(stored.turns)

    def items(self, env: Environ, response_id: str) -> list[Item]:
        """Return the items of one request and its response; empty if it is not stored."""
        try:
            return stored_form.items(self.get(env, response_id).turns)
        except LemonbusError as problem:
            if problem.failure.code is not Code.NOT_FOUND:
                raise
            return []

    def input_items(self, env: Environ, response_id: str) -> list[Item]:
        """Return all items that a response was generated from; raises ``not_found``."""
        return stored_form.items(self.get(env, response_id, conversation=True).turns, last_output=False)

    def cancel(self, env: Environ, response_id: str) -> dict[str, Any]:
        """Cancel a response that runs, and return it; raises ``not_found``."""
        return stored_form.shown(
            self._session.call(env, lambda number: CancelResponse(number, response_id, owner_of(env)), StoredResponse)
        )

    def delete(self, env: Environ, response_id: str) -> None:
        """Forget a response; raises ``not_found``."""
        self._session.call(env, lambda number: DeleteResponse(number, response_id, owner_of(env)), NoneType)

    def get(self, env: Environ, response_id: str, *, conversation: bool = False) -> StoredResponse:
        """Return a response as the supervisor has it, with all before it if ``conversation``; raises ``not_found``."""
        return self._session.call(
            env, lambda number: GetResponse(number, response_id, conversation, owner_of(env)), StoredResponse
        )
