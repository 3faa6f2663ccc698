"""Who asks for an answer: the API key of a request, its limits, and what is left of them."""

from __future__ import annotations

import msgspec

from protocol.config.api_keys import ApiKey
from protocol.times import Seconds
from protocol.wire.envelope import control_message


class Caller(msgspec.Struct, frozen=True, omit_defaults=True):
    """The API key of a request, by its name, with its limits. The supervisor counts requests but knows no keys.

    ``reserved_tokens``: how many tokens this request may use, as its gateway estimates; 0 if no limit of the key counts tokens.
    """

    key: str
    models: list[str] = []
    """Shell patterns of the registered model names that it may use; empty: all models."""
    requests_per_minute: int = 0
    tokens_per_minute: int = 0
    concurrent: int = 0
    reserved_tokens: int = 0
    tokens_per_day: int = 0
    tokens_per_month: int = 0

    @classmethod
    def of(cls, key: ApiKey) -> Caller:
        """Return the caller with this key."""
        return cls(
            key=key.name,
            models=key.models,
            requests_per_minute=key.requests_per_minute,
            tokens_per_minute=key.tokens_per_minute,
            concurrent=key.concurrent,
            tokens_per_day=key.tokens_per_day,
            tokens_per_month=key.tokens_per_month,
        )

    def reserving(self, tokens: int) -> Caller:
        """Return the caller of a request that may use this many tokens."""
        return msgspec.structs.replace(self, reserved_tokens=tokens) if self.counts_tokens else self

    @property
    def limited(self) -> bool:
        """Whether the key has any limit."""
        return bool(self.requests_per_minute or self.concurrent or self.counts_tokens)

    @property
    def has_budget(self) -> bool:
        """Whether its tokens of a day or a month are limited."""
        return bool(self.tokens_per_day or self.tokens_per_month)

    @property
    def counts_tokens(self) -> bool:
        """Whether any limit is one of tokens."""
        return bool(self.tokens_per_minute or self.has_budget)


class LimitStatus(msgspec.Struct, frozen=True, array_like=True):
    """One limit of a key, with ``remaining`` left; ``reset`` seconds until it is full again."""

    limit: int
    remaining: int
    reset: Seconds


class RateLimits(msgspec.Struct, frozen=True, array_like=True):
    """The limits of a key; None for each that it does not have. ``requests`` and ``tokens`` are those of a minute."""

    requests: LimitStatus | None = None
    tokens: LimitStatus | None = None
    tokens_of_day: LimitStatus | None = None
    tokens_of_month: LimitStatus | None = None


@control_message
class KeyUsage(msgspec.Struct, frozen=True):
    """Supervisor → gateway, before a request of a key with limits is granted or refused: the values of the response's headers."""

    number: int
    attempt: int
    limits: RateLimits
