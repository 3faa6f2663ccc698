"""Handles images that a request names by URL: they are refused, or fetched within the limits of the request."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from gateway.bus.session import SupervisorSession
from gateway.requests.inference_request import DEFAULT_ANSWER_TOKENS
from gateway.requests.request_session import reserve
from protocol.failures import invalid

ImageSource = Callable[[str, str], str]
"""Takes the URL of an image and its field's name, and returns a ``data:`` URL; raises ``invalid_request``."""


def is_inline(url: str) -> bool:
    """Return whether a URL contains the content itself."""
    return url[:5].lower() == "data:"


def only_inline(url: str, field: str) -> str:
    """Return a ``data:`` URL. Refuse all others: neither gateway nor engine fetches anything."""
    if is_inline(url):
        return url
    reason = f"`{field}`: images are not fetched from elsewhere: send a data URL (data:image/png;base64,…)"
    raise invalid(reason, field)


def image_source(session: SupervisorSession, env: dict[str, Any], endpoint: str, model: str | None) -> ImageSource:
    """Return the resolver for the image URLs of a request. ``env`` is ``req.env``.

    Before the first fetch, the request to ``endpoint`` of ``model`` is reserved, so that a request that would be
    refused causes no fetch.
    """
    if not session.settings.fetch_images:
        return only_inline
    from gateway.fetching.request_images import RequestImages  # noqa: PLC0415 - urllib3 is not for every server

    # The rest of the request has not been read yet.
    begin = partial(reserve, session, env, endpoint, model or "", DEFAULT_ANSWER_TOKENS)
    return RequestImages(session.settings, env, begin)
