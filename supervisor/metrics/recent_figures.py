"""The speed of each model's last requests, and a sample of the whole server every ten seconds, for an hour. Pure.

Time is counted in samples, so that no request reads a clock. Everything is bounded, and handed down to the next
supervisor with the other counters.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

import msgspec

from protocol.messages.events import Outcome
from protocol.messages.overview import MAX_SAMPLES, SAMPLE_INTERVAL_S, Sample
from protocol.times import UnixTime
from supervisor.metrics.percentiles import percentile

MAX_ANSWERS: Final = 64
"""Answers of each model that count."""
MAX_OBSERVATIONS: Final = 1024
"""Requests of ten seconds that count; of more, the last ones."""
_DIGITS: Final = 4


class ModelSpeed(NamedTuple):
    """Medians over the last answers of a model; 0: there was none."""

    tokens_per_second: float = 0.0
    first_token_s: float = 0.0
    queue_s: float = 0.0


_Answer = tuple[int, int, float, float, float]
"""How many samples had been taken before; the tokens of the answer, and their seconds; until its first token; in the queue.

A plain tuple, because each answer makes one.
"""
_State = tuple[int, list[bytes], dict[str, list[_Answer]]]


class RecentFigures:
    """What happened in the last hour."""

    def __init__(self) -> None:
        """Nothing has happened."""
        self._waits: deque[float] = deque(maxlen=MAX_OBSERVATIONS)
        self._first_tokens: deque[float] = deque(maxlen=MAX_OBSERVATIONS)
        self._tokens = 0
        self._taken = 0
        """How many samples were ever taken."""
        self._samples: deque[bytes] = deque(maxlen=MAX_SAMPLES)
        """As msgpack: they are handed down each second."""
        self.latest: Sample | None = None
        self._answers: dict[str, deque[_Answer]] = {}
        self._speeds: dict[str, ModelSpeed] = {}
        """Those that were asked for and have not changed since."""

    # What happens

    def granted(self, waited: float) -> None:
        """Note that a request got its slot after ``waited`` seconds."""
        self._waits.append(waited)

    def answered(self, model: str, outcome: Outcome) -> None:
        """Note the end of an answer that is whole."""
        answers = self._answers.get(model)
        if answers is None:
            answers = self._answers[model] = deque(maxlen=MAX_ANSWERS)
        tokens, first = outcome.output_tokens, outcome.first_token_s
        answers.append(
            (self._taken, tokens, outcome.decode_s if tokens > 1 else outcome.total_s, first, outcome.queue_s)
        )
        if model in self._speeds:
            del self._speeds[model]
        if first:
            self._first_tokens.append(first)

    def produced(self, tokens: int) -> None:
        """Note output tokens, as soon as a worker reports them."""
        self._tokens += tokens

    def forget(self, model: str) -> None:
        """Forget the answers of a model."""
        self._answers.pop(model, None)
        self._speeds.pop(model, None)

    def take_sample(self, at: UnixTime, running: int, waiting: int, memory_used: Mapping[str, int]) -> None:
        """Take a sample of what has happened since the last one."""
        waits, first_tokens = sorted(self._waits), sorted(self._first_tokens)
        self.latest = Sample(
            at=at,
            running=running,
            waiting=waiting,
            tokens_per_second=round(self._tokens / SAMPLE_INTERVAL_S, 1),
            queue_wait_p50=_rounded(waits, 0.5),
            queue_wait_p95=_rounded(waits, 0.95),
            first_token_p50=_rounded(first_tokens, 0.5),
            first_token_p95=_rounded(first_tokens, 0.95),
            memory_used=dict(memory_used),
        )
        self._samples.append(msgspec.msgpack.encode(self.latest))
        self._waits.clear()
        self._first_tokens.clear()
        self._tokens = 0
        self._taken += 1
        self._speeds.clear()  # some answers are now too old

    # What is shown

    def speed(self, model: str) -> ModelSpeed:
        """Return the speed of a model's last answers, none of them older than an hour."""
        known = self._speeds.get(model)
        if known is None:
            oldest = self._taken - MAX_SAMPLES
            answers = [each for each in self._answers.get(model, ()) if each[0] >= oldest]
            known = self._speeds[model] = ModelSpeed(
                round(_median(tokens / seconds for _, tokens, seconds, _, _ in answers if tokens and seconds), 1),
                round(_median(first for _, _, _, first, _ in answers if first), _DIGITS),
                round(_median(queued for *_, queued in answers), _DIGITS),
            )
        return known

    @property
    def samples(self) -> list[Sample]:
        """All samples, the oldest first."""
        return [msgspec.msgpack.decode(each, type=Sample) for each in self._samples]

    # From one supervisor to the next

    def state(self) -> _State:
        """Return what the next supervisor must know."""
        return self._taken, list(self._samples), {model: list(answers) for model, answers in self._answers.items()}

    def restore(self, state: Any) -> None:
        """Go on from what an earlier supervisor knew; empty: it knew nothing."""
        if not state:
            return
        taken, samples, answers = msgspec.convert(state, type=_State)
        self._taken = taken
        self._samples.extend(samples)
        self._answers = {model: deque(known, maxlen=MAX_ANSWERS) for model, known in answers.items()}
        self.latest = msgspec.msgpack.decode(samples[-1], type=Sample) if samples else None


def _rounded(ordered: list[float], share: float) -> float | None:
    return round(percentile(ordered, share), _DIGITS) if ordered else None


def _median(values: Iterable[float]) -> float:
    ordered = sorted(values)
    return percentile(ordered, 0.5) if ordered else 0.0
