"""What happens to an inference request before it is sent: its limits are checked, its media decoded, and it gets its digest."""

from __future__ import annotations

from functools import partial
from typing import Any

import msgspec

from gateway.http.bodies import body_decoding
from gateway.http.request_context import request_context
from gateway.http.via import servers_passed
from gateway.requests.inference_request import InferenceRequest
from gateway.requests.request_digest import request_digest
from gateway.requests.request_media import with_decoded_media
from gateway.requests.request_session import RequestSession
from protocol.requests.request_limits import fields_within_limits


def prepared(session: RequestSession, env: dict[str, Any], request: InferenceRequest) -> InferenceRequest:
    """Return the request as it is sent, with the client's address if it has no key.

    Raises ``invalid_request`` if a part that engines compile is too large, or if media are refused.
    """
    body = request.body
    fields = body_decoding.in_steps(len(body), env, partial(fields_within_limits, body, request.names))
    address = "" if request_context(env).api_key else env.get("REMOTE_ADDR") or ""
    digest = request_digest(request.endpoint, body, fields)
    noted = msgspec.structs.replace(request, address=address, digest=digest, via=servers_passed(env))
    return with_decoded_media(session, env, noted, fields)
