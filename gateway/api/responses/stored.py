"""Stored responses: the supervisor's store, and ``GET``, ``DELETE``, ``input_items`` and ``cancel`` of ``responses/{id}``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from types import NoneType
from typing import Any, ClassVar, Final

import falcon
import msgspec

from gateway.access.scopes import Scope
from gateway.api.common.request_fields import flag_in_query
from gateway.api.common.unsupported import unsupported
from gateway.api.responses import stored_form
from gateway.api.responses.background_stream import EventFeed, ResumedStream
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
MAX_DIGITS: Final = 9
"""Digits of the number of an event."""
Environ = dict[str, Any]

compact_response = unsupported(
    "POST", "responses/compact", "compaction is", "send a shorter `input`, or `truncation` auto"
)


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
            stored = self._get(env, response_id, conversation=True)
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
            return stored_form.items(self._get(env, response_id).turns)
        except LemonbusError as problem:
            if problem.failure.code is not Code.NOT_FOUND:
                raise
            return []

    def get(self, env: Environ, response_id: str) -> dict[str, Any]:
        """Return a response; raises ``not_found``."""
        return stored_form.shown(self._get(env, response_id))

    def input_items(self, env: Environ, response_id: str) -> list[Item]:
        """Return all items that a response was generated from; raises ``not_found``."""
        return stored_form.items(self._get(env, response_id, conversation=True).turns, last_output=False)

    def cancel(self, env: Environ, response_id: str) -> dict[str, Any]:
        """Cancel a response that runs, and return it; raises ``not_found``."""
        return stored_form.shown(
            self._session.call(env, lambda number: CancelResponse(number, response_id, owner_of(env)), StoredResponse)
        )

    def delete(self, env: Environ, response_id: str) -> None:
        """Forget a response; raises ``not_found``."""
        self._session.call(env, lambda number: DeleteResponse(number, response_id, owner_of(env)), NoneType)

    def stored(self, env: Environ, response_id: str) -> StoredResponse:
        """Return a response as the supervisor has it; raises ``not_found``."""
        return self._get(env, response_id)

    def _get(self, env: Environ, response_id: str, *, conversation: bool = False) -> StoredResponse:
        return self._session.call(
            env, lambda number: GetResponse(number, response_id, conversation, owner_of(env)), StoredResponse
        )


class _StoredResource:
    def __init__(self, store: StoreClient) -> None:
        self._store = store


class StoredResponseResource(_StoredResource):
    """``responses/{id}``."""

    def __init__(self, store: StoreClient, running_here: Callable[[str], EventFeed | None], silence: float) -> None:
        """``running_here``: returns the events of a response that this process runs.

        ``silence``: see :class:`ResumedStream`.
        """
        super().__init__(store)
        self._running_here, self._silence = running_here, silence

    scopes: ClassVar[Mapping[str, Scope]] = {"GET": Scope.INFERENCE, "DELETE": Scope.INFERENCE}

    def on_get(self, req: falcon.Request, resp: falcon.Response, response_id: str) -> None:
        """Answer with the present response, or with its events after the number ``starting_after``."""
        number = req.get_param("starting_after", default="")
        if number and not (number.isascii() and number.isdigit() and len(number) <= MAX_DIGITS):
            raise invalid("`starting_after` must be the number of an event", "starting_after")
        if not flag_in_query(req, "stream"):
            if number:
                raise invalid("`starting_after` needs `stream`", "starting_after")
            _answer(resp, self._store.get(req.env, response_id))
            return
        stream = ResumedStream(
            request_context(req.env),
            partial(self._store.stored, req.env, response_id),
            partial(self._running_here, response_id),
            int(number) if number else -1,
            self._silence,
        )
        resp.stream = stream
        resp.content_type = stream.media_type
        resp.set_header("Cache-Control", "no-cache")
        resp.set_header("X-Accel-Buffering", "no")

    def on_delete(self, req: falcon.Request, resp: falcon.Response, response_id: str) -> None:
        """Forget the response."""
        self._store.delete(req.env, response_id)
        _answer(resp, {"id": response_id, "object": "response", "deleted": True})


class InputItemsResource(_StoredResource):
    """``GET responses/{id}/input_items``."""

    def on_get(self, req: falcon.Request, resp: falcon.Response, response_id: str) -> None:
        """Answer with a page of the items, newest first by default."""
        order, after = req.get_param("order", default="desc"), req.get_param("after", default="")
        limit = req.get_param("limit", default="20")
        if order not in ("asc", "desc"):
            raise invalid("`order` must be asc or desc", "order")
        if not (limit.isascii() and limit.isdigit() and len(limit) <= len(str(stored_form.MAX_PAGE))) or not (
            1 <= int(limit) <= stored_form.MAX_PAGE
        ):
            raise invalid(f"`limit` must be a number from 1 to {stored_form.MAX_PAGE}", "limit")
        items = self._store.input_items(req.env, response_id)
        _answer(resp, stored_form.page(items, order, int(limit), after))


class CancelResource(_StoredResource):
    """``POST responses/{id}/cancel``."""

    scopes: ClassVar[Mapping[str, Scope]] = {"POST": Scope.INFERENCE}

    def on_post(self, req: falcon.Request, resp: falcon.Response, response_id: str) -> None:
        """Cancel the response, which must be a background response."""
        response = self._store.cancel(req.env, response_id)
        if not response["background"]:
            raise invalid("only responses with `background` true can be cancelled", "response_id")
        _answer(resp, response)


def _answer(resp: falcon.Response, document: dict[str, Any]) -> None:
    resp.content_type = falcon.MEDIA_JSON
    resp.data = msgspec.json.encode(document)
