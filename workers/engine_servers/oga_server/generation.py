"""One generation in ONNX Runtime GenAI, token by token.

The library holds Python's global lock while it computes. So it gets a long prompt in batches: between two batches,
other threads run, and a hang-up of the client is noticed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np

from workers.engine_servers.oga_server.prompt_cache import CachedGenerator, PromptCache
from workers.engine_servers.oga_server.request import OgaRequest, field_error
from workers.engine_servers.oga_server.response_writer import Logprobs

PREFILL_BATCH_TOKENS: Final = 64
"""Prompt tokens at a time; more are not faster on a processor."""


class TokenPenalties:
    """The penalties of one answer, and the tokens it has used."""

    def __init__(self, presence: float, frequency: float) -> None:
        """``presence`` is subtracted once for a used token, ``frequency`` once for each use."""
        self._presence, self._frequency = presence, frequency
        self._uses: dict[int, int] = {}

    def __bool__(self) -> bool:
        """Return whether any score changes."""
        return bool(self._presence or self._frequency)

    def count(self, token: int) -> None:
        """Note that the answer has used a token."""
        if self:
            self._uses[token] = self._uses.get(token, 0) + 1

    def applied_to(self, scores: Any) -> Any:
        """Return the scores of the whole vocabulary (last axis) after the penalties, as a new array."""
        lowered = np.array(scores, dtype=np.float32)
        for token, uses in self._uses.items():
            lowered[..., token] -= self._presence + self._frequency * uses
        return lowered


class OgaGeneration:
    """One answer: :meth:`prefill` to its end, then :meth:`generate`, then :meth:`end` whatever happened."""

    def __init__(
        self,
        cached: CachedGenerator,
        tokenizer: Any,
        end_tokens: set[int],
        tokens: Sequence[int],
        reused: int,
        limit: int,
        request: OgaRequest,
        prompt_cache: PromptCache | None,
        shown_tokens: Mapping[int, str],
    ) -> None:
        """At most ``limit`` tokens, until one of ``end_tokens``.

        The generator already has ``reused`` tokens of the prompt.

        ``shown_tokens``: number → text of tokens that are shown although the tokenizer has no text for them.
        """
        self._cached, self._generator, self._tokenizer = cached, cached.generator, tokenizer
        self._tokens, self._end_tokens, self._limit = tokens, end_tokens, limit
        self._top_logprobs = request.logprob_count
        self._penalties = TokenPenalties(request.presence_penalty or 0.0, request.frequency_penalty or 0.0)
        self._prompt_cache = prompt_cache
        self._shown_tokens = shown_tokens
        self._text = tokenizer.create_stream()
        self._logprobs: Logprobs = []
        self.reused = reused
        """Tokens of the prompt that are not computed again."""
        self.count = 0
        """Generated tokens, including the one that ends the answer."""
        self.reason = "length"
        """Why it ended, in OpenAI's words."""

    def prefill(self) -> Iterator[int]:
        """Compute the prompt; after each batch, yield how many of its tokens are done."""
        for start in range(self.reused, len(self._tokens), PREFILL_BATCH_TOKENS):
            batch = self._tokens[start : start + PREFILL_BATCH_TOKENS]
            self._generator.append_tokens(batch)
            yield start + len(batch)

    def generate(self) -> Iterator[str]:
        """Yield the answer's text, token by token; some tokens have no text."""
        for _ in range(self._limit):
            needs_scores = self._top_logprobs is not None or self._penalties
            scores = self._generator.get_logits() if needs_scores else None
            if scores is not None and self._penalties:
                self._generator.set_logits(self._penalties.applied_to(scores))
            self._generator.generate_next_token()
            token = int(self._generator.get_next_tokens()[0])
            self.count += 1
            if token in self._end_tokens:
                self.reason = "stop"
                return
            self._penalties.count(token)
            if scores is not None and self._top_logprobs is not None:
                self._logprobs.append(token_logprobs(scores, token, self._top_logprobs, self._text_of))
            yield self._text.decode(token) or self._shown_tokens.get(token, "")

    def end(self) -> None:
        """Keep what was computed for the next prompt. Not to be called after an error of the library."""
        if self._prompt_cache is not None:
            self._prompt_cache.keep(self._cached)

    def _text_of(self, token: int) -> str:
        return str(self._tokenizer.decode([token]))

    def prompt_logprobs(self) -> Iterator[Logprobs]:
        """Compute the prompt without reusing anything; yield the log probabilities of its tokens batch by batch.

        Raises :class:`EngineHttpError` for a model whose file only has those of the last token.
        """
        top, tokens = self._top_logprobs or 0, [*map(int, self._tokens)]
        yield [unscored(tokens[0], self._text_of)]
        begin = 0
        for end in self.prefill():
            rows = rows_of(self._generator.get_output("logits"))
            if len(rows) != end - begin:
                raise field_error("echo", "this model's file does not give the probabilities of a prompt's tokens")
            pairs = zip(rows, tokens[begin + 1 : end + 1], strict=False)  # nothing follows the last token
            yield [token_logprobs(row, token, top, self._text_of) for row, token in pairs]
            begin = end

    def take_logprobs(self) -> Logprobs | None:
        """Return the log probabilities of the tokens since the last call, None if they were not requested."""
        if self._top_logprobs is None:
            return None
        taken, self._logprobs = self._logprobs, []
        return taken


def token_logprobs(scores: Any, token: int, top: int, text_of: Callable[[int], str]) -> dict[str, Any]:
    """Return the entry of a token. ``scores`` are those of the whole vocabulary before sampling."""
    row = rows_of(scores)[-1]
    highest = row.max()
    logs = row - highest - np.log(np.exp(row - highest).sum())
    best: Any = np.argpartition(-logs, min(top, len(logs) - 1))[:top] if top else []
    ranked = sorted((int(each) for each in best), key=lambda each: -logs[each])
    return {
        **_token_entry(logs, token, text_of),
        "top_logprobs": [_token_entry(logs, each, text_of) for each in ranked],
    }


def rows_of(scores: Any) -> Any:
    """Return scores as a row for each preceding token."""
    return np.asarray(scores, dtype=np.float64).reshape(-1, scores.shape[-1])


def unscored(token: int, text_of: Callable[[int], str]) -> dict[str, Any]:
    """Return the entry of a token without a preceding one, which has no probability."""
    return {"id": token, "token": text_of(token), "bytes": list(text_of(token).encode()), "top_logprobs": []}


def _token_entry(logs: Any, token: int, text_of: Callable[[int], str]) -> dict[str, Any]:
    text = text_of(token)
    return {"id": token, "token": text, "bytes": list(text.encode()), "logprob": float(logs[token])}
