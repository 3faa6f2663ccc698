"""What the answer to a line means: its result, or that it is sent again later. Pure."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import msgspec

from protocol.failures import DECODE_ERRORS, HTTP_ERRORS, Code, printable

MAX_TRIES: Final = 3
"""How often a line is sent whose model or engine fails."""
_LONGEST_PAUSE_S: Final = 60.0
"""A server that asks for more patience is asked again after this time."""
_LONGEST_REASON: Final = 200
_PATIENT: Final = frozenset({code for code, error in HTTP_ERRORS.items() if error.type == "overloaded"}) | {
    Code.RATE_LIMITED,
    Code.QUOTA,
    Code.DOWNLOAD_PAUSED,
}
"""Failures that pass without a change of the request: waiting for the end of them costs no try."""
_FAILING: Final = frozenset({429, 500, 502, 503, 504, 507, 529})


class LineAnswer(NamedTuple):
    """What came back for a line; ``status`` 0: the connection broke."""

    status: int
    body: bytes = b""
    request_id: str = ""
    retry_after: float = 0.0
    final: bool = False
    """The server says that repeating does not help."""

    @property
    def code(self) -> str:
        """The code of an error body of any API."""
        return str(self._error.get("code", ""))

    @property
    def why(self) -> str:
        """What an error says, for people."""
        if not self.status:
            return "the connection to the server broke"
        return printable(str(self._error.get("message") or f"the server answered {self.status}"), _LONGEST_REASON)

    @property
    def _error(self) -> dict[str, Any]:
        try:
            error: Any = msgspec.json.decode(self.body, type=dict[str, Any]).get("error")
        except DECODE_ERRORS:
            return {}
        return error if isinstance(error, dict) else {}


class AnswerVerdict(NamedTuple):
    """What follows."""

    done: bool
    """It is the result of the line."""
    busy: bool = False
    """There was no free slot."""
    pause: float = 0.0
    """When to send it again, in seconds from now."""
    counts: bool = False
    """It was one of the line's tries."""


def judge(answer: LineAnswer, tries: int) -> AnswerVerdict:
    """Decide about an answer; ``tries``: of the line before, that count."""
    if not answer.status:
        return AnswerVerdict(done=False, pause=1.0)
    if answer.status < 400:
        return AnswerVerdict(done=True)
    code = answer.code
    if code == Code.BATCH_WAITS:
        return AnswerVerdict(done=False, busy=True)
    pause = min(_LONGEST_PAUSE_S, answer.retry_after or 1.0)
    if code in _PATIENT:
        return AnswerVerdict(done=False, pause=pause)
    if answer.status in _FAILING and not answer.final and tries + 1 < MAX_TRIES:
        return AnswerVerdict(done=False, pause=pause, counts=True)
    return AnswerVerdict(done=True)
