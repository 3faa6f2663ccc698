"""What happens to an inference request before it is sent: its limits are checked, its media decoded; its tokens and digest are noted."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from gateway.http.bodies import body_decoding
from gateway.http.request_context import request_context
from gateway.http.via import servers_passed
from gateway.requests.inference_request import InferenceRequest, reserved_tokens
from gateway.requests.request_digest import request_digest
from gateway.requests.request_media import with_decoded_media
from gateway.requests.request_session import RequestSession
from protocol.requests.request_limits import fields_within_limits
from protocol.requests.text_limits import Pause, RequestFields


def checked_fields(
    env: dict[str, Any], endpoint: str, answers: int, body: bytes, names: Mapping[str, str]
) -> tuple[RequestFields | None, int]:
    """Return the fields of a body, and the tokens that its request reserves; None and 0 if it is not a JSON object.

    Raises ``invalid_request`` if a part that engines compile is too large. Arguments: as in :class:`InferenceRequest`.
    """
    caller = request_context(env).caller

    def check(pause: Pause) -> tuple[RequestFields | None, int]:
        fields = fields_within_limits(body, names, pause)
        counts = fields is not None and caller is not None and caller.counts_tokens
        return fields, reserved_tokens(endpoint, answers, fields or {}, pause) if counts else 0

    return body_decoding.in_steps(len(body), env, check)


def prepared(session: RequestSession, env: dict[str, Any], request: InferenceRequest) -> InferenceRequest:
    """Return the request as it is sent, with the client's address if it has no key.

    Raises ``invalid_request`` if a part that engines compile is too large, or if media are refused.
    """
    body = request.body
    fields, tokens = checked_fields(env, request.endpoint, request.weight, body, request.names)
    address = "" if request_context(env).api_key else env.get("REMOTE_ADDR") or ""
    digest = request_digest(request.endpoint, body, fields)
    via = servers_passed(env)
    noted = msgspec.structs.replace(request, address=address, digest=digest, via=via, reserved_tokens=tokens)
    return with_decoded_media(session, env, noted, fields)
