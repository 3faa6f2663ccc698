"""What each API key has used of its limits, and whether it may send another request. Pure: times are arguments.

* ``requests_per_minute`` counts accepted requests. A refused one costs nothing, so that a client that asks again too
  early is not locked out forever.
* ``tokens_per_minute`` counts the tokens of prompts and answers once they are known; a key in debt waits until it is
  paid. While a request waits or runs, the tokens that it may use are reserved, so that concurrent requests do not each use
  up the limit.
* ``concurrent`` bounds the requests that wait or run; the scheduler knows their number.
"""

from __future__ import annotations

import math
from typing import Final

import msgspec

from protocol.failures import Code, Failure
from protocol.messages.caller import Caller, LimitStatus, RateLimits
from supervisor.limits.token_bucket import TokenBucket

MAX_IDLE_KEYS: Final = 1024
"""Keys beyond this number are forgotten once they have nothing used up."""
RUNNING_RETRY_S: Final = 1.0
"""Wait, in seconds, if the end of any running request may help."""
_LEAST_TOKENS: Final = 1.0
"""What must be left for another request, whose own tokens are not known yet."""


class KeyLevels(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """The buckets of one key, for the next supervisor: see :attr:`TokenBucket.state`."""

    key: str
    requests: tuple[int, float, float] | None
    tokens: tuple[int, float, float] | None


class _KeyBuckets:
    """The buckets of one key; None for each limit that it does not have."""

    __slots__ = ("requests", "tokens")

    def __init__(self) -> None:
        self.requests: TokenBucket | None = None
        self.tokens: TokenBucket | None = None

    def unused(self, now: float) -> bool:
        buckets = [bucket for bucket in (self.requests, self.tokens) if bucket is not None]
        return all(bucket.level(now) >= bucket.per_minute for bucket in buckets)


class RateLimiter:
    """The usage of all keys, by their names."""

    def __init__(self) -> None:
        """Nothing is used."""
        self._usage: dict[str, _KeyBuckets] = {}

    def refusal(self, caller: Caller, running: int, now: float, reserved: int = 0) -> Failure | None:
        """Return why a key may not send another request now.

        ``running``: its requests that wait or run. ``reserved``: the tokens that these may use.
        """
        usage = self._usage_of(caller, now)
        if usage.requests is not None and (wait := usage.requests.wait_for(1, now)):
            return refusal_of(caller, f"{caller.requests_per_minute} requests a minute", wait)
        if usage.tokens is not None and (wait := usage.tokens.wait_for(_LEAST_TOKENS, now)):
            return refusal_of(caller, f"{caller.tokens_per_minute} tokens a minute", wait)
        if usage.tokens is not None and usage.tokens.wait_for(reserved + _LEAST_TOKENS, now):
            limit = f"{caller.tokens_per_minute} tokens a minute, and its running requests may use what is left"
            return refusal_of(caller, limit, RUNNING_RETRY_S)
        if caller.concurrent and running >= caller.concurrent:
            return refusal_of(caller, f"{caller.concurrent} requests at once", RUNNING_RETRY_S)
        return None

    def accept(self, caller: Caller, now: float) -> None:
        """Count a request that is accepted."""
        usage = self._usage_of(caller, now)
        if usage.requests is not None:
            usage.requests.take(1, now)

    def give_back(self, caller: Caller, now: float) -> None:
        """Take back a counted request, which will be counted again."""
        usage = self._usage_of(caller, now)
        if usage.requests is not None:
            usage.requests.take(-1, now)

    def use_tokens(self, key: str, tokens: int, now: float) -> bool:
        """Count the tokens of a request that has ended; return whether the key has a limit that counts them."""
        usage = self._usage.get(key)
        if usage is None or usage.tokens is None:
            return False
        usage.tokens.take(tokens, now)
        return True

    def levels(self, key: str) -> KeyLevels:
        """Return what is left of the limits of a key, for the next supervisor."""
        usage = self._usage.get(key) or _KeyBuckets()
        requests, tokens = usage.requests, usage.tokens
        return KeyLevels(key, requests.state if requests else None, tokens.state if tokens else None)

    def state(self) -> list[KeyLevels]:
        """Return the same of all keys."""
        return [self.levels(key) for key in self._usage]

    def restore(self, levels: KeyLevels) -> None:
        """Go on from what an earlier supervisor knew of a key."""
        usage = self._usage[levels.key] = _KeyBuckets()
        usage.requests = TokenBucket.restored(*levels.requests) if levels.requests else None
        usage.tokens = TokenBucket.restored(*levels.tokens) if levels.tokens else None

    def rate_limits(self, caller: Caller, now: float) -> RateLimits:
        """Return the remaining limits, for the headers of a response."""
        usage = _with_limits(self._usage.get(caller.key) or _KeyBuckets(), caller, now)
        return RateLimits(_status(usage.requests, now), _status(usage.tokens, now))

    def _usage_of(self, caller: Caller, now: float) -> _KeyBuckets:
        usage = self._usage.get(caller.key)
        if usage is None:
            if len(self._usage) >= MAX_IDLE_KEYS:
                self._usage = {key: each for key, each in self._usage.items() if not each.unused(now)}
            usage = self._usage[caller.key] = _KeyBuckets()
        return _with_limits(usage, caller, now)


def _with_limits(usage: _KeyBuckets, caller: Caller, now: float) -> _KeyBuckets:
    usage.requests = _bucket(usage.requests, caller.requests_per_minute, now)
    usage.tokens = _bucket(usage.tokens, caller.tokens_per_minute, now)
    return usage


def _bucket(bucket: TokenBucket | None, per_minute: int, now: float) -> TokenBucket | None:
    """Return the bucket of a limit, which may have changed since the last request."""
    if not per_minute:
        return None
    if bucket is None:
        return TokenBucket(per_minute, now)
    if bucket.per_minute != per_minute:
        bucket.resize(per_minute, now)
    return bucket


def _status(bucket: TokenBucket | None, now: float) -> LimitStatus | None:
    if bucket is None:
        return None
    remaining = max(0, math.floor(bucket.level(now) + 1e-6))
    return LimitStatus(bucket.per_minute, remaining, bucket.wait_for(bucket.per_minute, now))


def refusal_of(caller: Caller, limit: str, wait: float, code: Code = Code.RATE_LIMITED) -> Failure:
    """Return the refusal of a request for a ``limit`` of its key; ``wait`` in seconds."""
    return Failure(code, f"The limit of the API key {caller.key} is {limit}", retry_after=wait)
