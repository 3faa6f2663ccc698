"""A request to a model that has ended, as operators are shown it. Pure."""

from __future__ import annotations

from typing import NamedTuple

from gateway.http.client_disconnect import CLIENT_LEFT
from gateway.http.request_context import RequestContext
from protocol.failures import Code
from protocol.messages.metrics import EndedRequest


class RequestEnd(NamedTuple):
    """What is kept at the end of each request. Most are forgotten before anyone looks, so nothing is computed yet."""

    context: RequestContext
    endpoint: str
    dialect: str
    status: int
    seconds: float
    at: float
    """Unix seconds."""
    complete: bool
    """Whether the client got the whole answer."""

    def shown(self) -> EndedRequest:
        """Return the request."""
        context, failure, outcome = self.context, self.context.failure, self.context.outcome
        code, message = (failure.code.value, failure.message) if failure is not None else ("", "")
        if failure is None and not self.complete:
            code, message = Code.CANCELLED.value, CLIENT_LEFT
        figures = outcome.figures() if outcome is not None else {}
        return EndedRequest(
            id=context.label,
            ended_at=round(self.at, 3),
            total_s=round(self.seconds, 3),
            endpoint=self.endpoint,
            dialect=self.dialect,
            model=context.model,
            key=context.api_key.name if context.api_key is not None else "",
            status=self.status,
            code=code,
            message=message,
            queue_s=figures.get("queue_s", 0.0),
            first_token_s=figures.get("first_token_s", 0.0),
            prompt_tokens=outcome.prompt_tokens if outcome is not None else 0,
            output_tokens=outcome.output_tokens if outcome is not None else failure.tokens_sent if failure else 0,
            tokens_per_second=figures.get("tokens_per_second", 0.0),
        )
