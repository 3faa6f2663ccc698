"""The reports of ended attempts: numbered, so that the supervisor counts each once, and kept for its successor."""

from __future__ import annotations

import itertools
from collections import deque
from typing import Final

import msgspec

from protocol.failures import Code
from protocol.messages.events import Outcome
from protocol.messages.recovery import MAX_ENDED
from protocol.messages.work import AttemptEnded
from workers.requests.attempt import Attempt


class EndReports:
    """Makes the reports of one worker. They must be sent in the order in which they were made."""

    def __init__(self) -> None:
        """Nothing has ended."""
        self.model = ""
        """The registered name of the engine's model."""
        self.latest: Final[deque[AttemptEnded]] = deque(maxlen=MAX_ENDED)
        """The latest ends, except those that a gateway learns from the supervisor (``returned``)."""
        self._serials = itertools.count(1)
        self.tokens = 0
        """Output tokens of all attempts that have ended."""

    def make(
        self, attempt: Attempt, code: str = "", outcome: Outcome | None = None, tokens: int = 0, prompt_tokens: int = 0
    ) -> AttemptEnded:
        """Return the report of an attempt that ends now. A read costs nothing, so it has no outcome and no serial number."""
        costs = bool(attempt.request.weight) and code != Code.RETURNED
        serial = next(self._serials) if costs else 0
        self.tokens += outcome.output_tokens if outcome is not None else attempt.tokens
        return AttemptEnded(
            *attempt.key,
            code=code,
            outcome=msgspec.structs.replace(outcome, serial=serial) if outcome is not None and costs else None,
            tokens=tokens,
            prompt_tokens=prompt_tokens,
            serial=serial,
            model=self.model,
            api_key=attempt.run.api_key,
            seconds=attempt.answer.seconds if outcome is None else 0.0,
            more=attempt.run.more,
        )

    def keep(self, end: AttemptEnded) -> None:
        """Keep an end for the next supervisor, without the times of its tokens, which take memory."""
        if end.outcome is not None:
            end = msgspec.structs.replace(end, outcome=msgspec.structs.replace(end.outcome, token_times=b""))
        self.latest.append(end)
