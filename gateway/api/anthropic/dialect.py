"""Anthropic's routes and errors."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, ClassVar

from gateway.api.anthropic import batches, errors, messages
from gateway.api.common.dialect import VERSION_PREFIXES, Dialect, Routes, versioned
from gateway.api.common.operations import Documentation
from gateway.api.common.published_routes import ANTHROPIC_FAMILIES
from gateway.api.common.route_resource import resources
from gateway.bus.session import SupervisorSession
from gateway.http.rate_limit_headers import anthropic_limit_headers
from protocol.failures import Failure
from protocol.messages.caller import RateLimits


class AnthropicDialect(Dialect):
    """Anthropic's Messages API."""

    error_prefixes: ClassVar[tuple[str, ...]] = tuple(f"{prefix}/messages" for prefix in VERSION_PREFIXES)
    shared_error_prefixes: ClassVar[tuple[str, ...]] = tuple(
        f"{prefix}/{family}" for prefix in VERSION_PREFIXES for family in ("models", *ANTHROPIC_FAMILIES)
    )

    def routes(self, session: SupervisorSession) -> Routes:
        """Return the routes, under every version prefix."""
        routes = versioned(
            {
                "messages": messages.MessagesResource(session),
                "messages/count_tokens": messages.CountTokensResource(session),
            }
        )
        return {**routes, **resources(session, batches)}

    def documentation(self) -> Documentation:
        """Return what the routes take and answer."""
        from gateway.api.anthropic.documentation import DOCUMENTATION  # noqa: PLC0415 - only when the document is asked for

        return DOCUMENTATION

    def is_client(self, environ: Mapping[str, Any]) -> bool:
        """Return whether a request has the header that all of Anthropic's clients send, and others do not."""
        return "HTTP_ANTHROPIC_VERSION" in environ

    def error_status(self, failure: Failure) -> int:
        """Return the HTTP status of an error response."""
        return errors.status_of(failure)

    def error_body(self, failure: Failure, label: str, *, detail: bool = False) -> bytes:
        """Return the JSON body of an error response."""
        return errors.error_body(failure, label, detail=detail)

    def limit_headers(self, limits: RateLimits, now: datetime) -> dict[str, str]:
        """Return the headers about the limits of the caller's key."""
        return anthropic_limit_headers(limits, now)
