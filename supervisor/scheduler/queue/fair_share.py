"""Which request that waits for a model comes next: deficit round robin between API keys, by tokens. Pure.

Each key with waiting requests gets :data:`QUANTUM` tokens in every round. Its next request is granted when it has saved
up the probable cost; the difference to the real cost is settled at the request's end. Within one key, and without keys,
it is first come, first served. While only one key waits, nothing is charged: a key does not pay later for what nothing
else wanted.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from protocol.requests.text_limits import BYTES_PER_TOKEN
from supervisor.scheduler.queue.work_items import QueuedRequest

QUANTUM: Final = 32
"""Tokens of a round: about the least that a request uses, so that keys take turns even with the smallest requests."""
_SMOOTHING: Final = 0.2
_MAX_PROMPT_TOKENS: Final = 8192
"""A body counts as no longer a prompt than this, because most of a larger one is an image or a recording."""
_MAX_DEBT: Final = 32_768
"""A key is at most this far behind the others."""


class _NextRequest(NamedTuple):
    """The next request, and its key."""

    waiting: QueuedRequest
    key: str
    rounds: int
    """Rounds until its key has enough."""


class FairShare:
    """The shares of the keys of one model."""

    def __init__(self) -> None:
        """No key has more than another."""
        self._deficits: dict[str, float] = {}
        """Tokens that a key has saved up; negative for a debt."""
        self._rotation: list[str] = []
        """Keys with waiting requests, beginning with the one whose turn it is."""
        self._mean_output = 0.0

    def next(self, heads: Mapping[str, QueuedRequest]) -> QueuedRequest | None:
        """Return the next request; changes nothing.

        ``heads``: API key → the first of its waiting requests, longest-waiting key first.
        """
        choice = self._choose(heads)
        return choice.waiting if choice else None

    def take(self, heads: Mapping[str, QueuedRequest]) -> float:
        """Note that the next request is granted; return the tokens charged for it, 0 if no other key waits."""
        choice = self._choose(heads)
        return self._charge(choice, heads) if choice is not None and len(heads) > 1 else 0.0

    def _charge(self, choice: _NextRequest, heads: Mapping[str, QueuedRequest]) -> float:
        rotation = self._ordered(heads)
        turn = rotation.index(choice.key)
        for index, key in enumerate(rotation):
            turns = choice.rounds if index <= turn else choice.rounds - 1
            self._deficits[key] = self._deficits.get(key, 0.0) + max(0, turns) * QUANTUM
        cost = self.expected_tokens(choice.waiting)
        self._deficits[choice.key] -= cost
        self._rotation = rotation[turn:] + rotation[:turn]
        # A key that waits for nothing saves nothing up.
        self._deficits = {key: tokens for key, tokens in self._deficits.items() if key in heads or tokens < 0}
        return cost

    def settle(self, key: str, charged: float, used: int) -> None:
        """Note what a request that was charged when granted has really used.

        It costs at least a quantum: otherwise a key whose requests report nothing (images, failures) would keep its
        turn forever.
        """
        if charged:
            tokens = self._deficits.get(key, 0.0) + charged - max(used, QUANTUM)
            self._deficits[key] = max(-_MAX_DEBT, tokens)

    def learn(self, output_tokens: int) -> None:
        """Take note of an answer's length."""
        self._mean_output += (_SMOOTHING if self._mean_output else 1.0) * (output_tokens - self._mean_output)

    def expected_tokens(self, waiting: QueuedRequest) -> float:
        """Estimate what a request will use, from the size of its body and the answers before it."""
        prompt = min(waiting.request.size / BYTES_PER_TOKEN, _MAX_PROMPT_TOKENS)
        return max(1.0, prompt + self._mean_output)

    def order(self, queues: Mapping[str, Sequence[QueuedRequest]], most: int | None = None) -> list[QueuedRequest]:
        """Return the requests in the order in which they will be granted, if no other one comes; the first ``most``.

        ``queues``: API key → its requests in the order of arrival, longest-waiting key first.
        """
        heads = {key: own[0] for key, own in queues.items()}
        rotation = self._ordered(heads) if len(heads) > 1 else list(heads)
        deficits = dict(self._deficits)
        # Keys are served by round, and within a round in the order of their turns.
        turns = [(self._rounds(key, heads[key]), turn, key) for turn, key in enumerate(rotation)]
        if turns and turns[0][0] == 0:
            # The key whose turn it is goes on without a round.  Its next round is behind those of all others.
            turns[0] = (0, len(rotation), rotation[0])
        heapq.heapify(turns)
        rounds_before = dict.fromkeys(rotation, 0)
        served = dict.fromkeys(rotation, 0)
        ordered: list[QueuedRequest] = []
        while len(turns) > 1 and (most is None or len(ordered) < most):
            rounds, turn, key = turns[0]
            own, number = queues[key], served[key]
            ordered.append(own[number])
            served[key] = number = number + 1
            if number == len(own):
                heapq.heappop(turns)
                continue
            gained = (rounds - rounds_before[key]) * QUANTUM
            rounds_before[key] = rounds
            deficits[key] = deficits.get(key, 0.0) + gained - self.expected_tokens(own[number - 1])
            missing = self.expected_tokens(own[number]) - deficits[key]
            heapq.heapreplace(turns, (rounds + max(0, math.ceil(missing / QUANTUM)), turn, key))
        if len(turns) == 1:  # what is left is all of one key
            _, _, key = turns[0]
            ordered += queues[key][served[key] : None if most is None else served[key] + most - len(ordered)]
        return ordered

    def _choose(self, heads: Mapping[str, QueuedRequest]) -> _NextRequest | None:
        if len(heads) < 2:
            return next((_NextRequest(waiting, key, 0) for key, waiting in heads.items()), None)
        best: _NextRequest | None = None
        for key in self._ordered(heads):
            rounds = self._rounds(key, heads[key])
            if best is None or rounds < best.rounds:
                best = _NextRequest(heads[key], key, rounds)
                if rounds <= 1:
                    break  # only the first key may need no round at all
        return best

    def _rounds(self, key: str, waiting: QueuedRequest) -> int:
        missing = self._missing(key, waiting)
        if self._has_turn(key) and missing <= 0:
            return 0
        # A key gets a quantum when its turn comes.
        return max(1, math.ceil(missing / QUANTUM))

    def _ordered(self, heads: Mapping[str, QueuedRequest]) -> list[str]:
        """Return the waiting keys in the order of their turns. A turn is over when the next request costs too much."""
        known = dict.fromkeys(key for key in self._rotation if key in heads)
        ordered = list(known | dict.fromkeys(heads))
        first = ordered[0]
        if self._has_turn(first) and self._missing(first, heads[first]) > 0:
            ordered = [*ordered[1:], first]
        return ordered

    def _has_turn(self, key: str) -> bool:
        return self._rotation[:1] == [key]

    def _missing(self, key: str, waiting: QueuedRequest) -> float:
        return self.expected_tokens(waiting) - self._deficits.get(key, 0.0)
