"""The data plane: what a worker publishes for a gateway. Tokens travel here and nowhere else.

One message is one frame: the gateway's topic, the worker's id and a dot, and a msgpack list of the events that one
iteration of the worker's loop had for that gateway.
"""

from __future__ import annotations

import enum
from array import array
from collections.abc import Sequence
from typing import Final

import msgspec

from protocol.failures import DECODE_ERRORS, Failure
from protocol.times import Seconds


class EventKind(enum.IntEnum):
    """What an event says about its attempt."""

    DELTA = 0
    """``data``: whole server-sent events of an OpenAI stream (``data: {…}\\n\\n``…), or, for a request that is
    not streamed, the whole JSON body. ``count``: tokens in it. For an endpoint of ``BYTE_STREAMS`` (``work.py``): the
    next bytes of the answer, cut anywhere; ``count``: pieces."""
    ALIVE = 1
    """The engine makes progress without output (prefill).  ``data`` is empty."""
    DONE = 2
    """The generation is complete.  ``data``: :class:`Outcome`."""
    FAILED = 3
    """The attempt ended otherwise.  ``data``: :class:`~protocol.failures.Failure`."""
    WARNING = 4
    """A part of the request has no effect. ``data``: what to tell the client, in ASCII without quotes."""


class Event(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """One event of one attempt."""

    number: int
    attempt: int
    seq: int
    kind: int
    count: int = 0
    data: bytes = b""


class Outcome(msgspec.Struct, frozen=True, omit_defaults=True):
    """The cost of a finished generation. Times in seconds, tokens as the engine counted them, unless they are ``estimated``.

    ``prompt_tokens`` is the whole prompt, ``cached_tokens`` the part found in the prompt cache; ``model`` is the
    registered name of the model that answered; ``decode_s`` begins when the prompt has been processed.
    """

    prompt_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    first_token_s: Seconds = 0.0
    decode_s: Seconds = 0.0
    total_s: Seconds = 0.0
    token_times: bytes = b""
    """The time of each output token, 32-bit floats in this machine's byte order; no process on the way decodes them."""
    model: str = ""
    queue_s: Seconds = 0.0
    """Seconds for which the request waited for a slot, before all other times begin."""
    serial: int = 0
    """As in :class:`~protocol.messages.work.AttemptEnded`: the gateway reports the end if its worker dies before it can."""
    estimated: bool = False
    """Whether the engine counted no tokens: they are for limits and statistics, and no client gets them as its usage."""

    @property
    def reported(self) -> tuple[int, int]:
        """The tokens of prompt and answer that a client may get as its usage; 0 if the engine counted none."""
        return (0, 0) if self.estimated else (self.prompt_tokens, self.output_tokens)

    @property
    def each_token_s(self) -> list[float]:
        """The time of each output token, to the microsecond."""
        return [round(seconds, 6) for seconds in array("f", self.token_times)]

    @property
    def tokens_per_second(self) -> float:
        """The speed of generation. For a single token, the whole time counts."""
        seconds = self.decode_s if self.output_tokens > 1 else self.total_s
        return self.output_tokens / seconds if seconds > 0 else 0.0

    def figures(self) -> dict[str, int | float]:
        """Return the fields for a log record."""
        return {
            **({"estimated": True} if self.estimated else {}),
            "prompt_tokens": self.prompt_tokens,
            "cached_tokens": self.cached_tokens,
            "output_tokens": self.output_tokens,
            # round() with a number of digits takes three times as long, for each request.
            "queue_s": round(self.queue_s * 1e4) / 1e4,
            "first_token_s": round(self.first_token_s * 1e4) / 1e4,
            "tokens_per_second": round(self.tokens_per_second * 10) / 10,
        }


_decode = msgspec.msgpack.Decoder(list[Event]).decode
_encode = msgspec.msgpack.Encoder().encode
_failure = msgspec.msgpack.Decoder(Failure).decode
_outcome = msgspec.msgpack.Decoder(Outcome).decode

MAX_TOKEN_TIMES: Final = 16_384
"""``token_times`` is cut here: it is a statistic, not a transcript."""


def pack_batch(events: list[Event]) -> bytes:
    """Return the part of a message that follows the topic and the worker."""
    return _encode(events)


def unpack_batch(frame: bytes, start: int) -> tuple[str, list[Event]]:
    """Return the worker and the events of a message with a topic of ``start`` bytes; raises ValueError for anything else."""
    end = frame.index(b".", start)
    try:
        return frame[start:end].decode(), _decode(memoryview(frame)[end + 1 :])
    except DECODE_ERRORS as problem:
        raise ValueError(str(problem)) from problem


def failure_of(event: Event) -> Failure:
    """Return what a FAILED event carries."""
    return _failure(event.data)


def outcome_of(event: Event) -> Outcome:
    """Return what a DONE event carries."""
    return _outcome(event.data)


def total_outcome(outcomes: Sequence[Outcome]) -> Outcome:
    """Return the total cost of the pieces of one request, given in order."""
    return Outcome(
        prompt_tokens=sum(each.prompt_tokens for each in outcomes),
        cached_tokens=sum(each.cached_tokens for each in outcomes),
        output_tokens=sum(each.output_tokens for each in outcomes),
        first_token_s=outcomes[0].first_token_s,
        decode_s=sum(each.decode_s for each in outcomes),
        total_s=sum(each.total_s for each in outcomes),
        token_times=b"".join(each.token_times for each in outcomes),
        model=outcomes[-1].model,
        queue_s=sum(each.queue_s for each in outcomes),
        estimated=any(each.estimated for each in outcomes),
    )
