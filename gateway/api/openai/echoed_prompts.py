"""Completions that begin with their prompt (``echo``), and the log probabilities of the prompt's own tokens.

llama-server gives log probabilities only for tokens that it generates. So it is made to generate the prompt. At each
place, a grammar of token numbers allows one token; for a token that no grammar can demand, a bias does. Neither changes
the reported probabilities, which are those before sampling. Each token in the answer is compared with the prompt's. The
engine reports nothing about a token that ends within a character: such a token is searched among the alternatives to
another one.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cached_property
from itertools import takewhile
from typing import Any, Final, NamedTuple

import msgspec
from msgspec.structs import replace

from gateway.api.openai.text_completion import EchoedPrompt, Token, TopToken, prompt_logprobs, text_completion
from gateway.http.request_context import request_context
from gateway.requests.answer_stream import Environ, WholeAnswer, complete
from gateway.requests.inference_request import InferenceRequest
from gateway.requests.request_session import RequestSession
from protocol.failures import DECODE_ERRORS, Code, Failure, LemonbusError, invalid, not_understood
from protocol.messages.events import Outcome, total_outcome

MAX_SCORED_TOKENS: Final = 32_768
"""Tokens of all prompts of a request. docs/engines/llamacpp.md says what each costs."""
MAX_RUN_TOKENS: Final = 128
"""Tokens requested from the engine at a time: another request may have to wait this long for a slot."""
ALTERNATIVE_COUNTS: Final = (1_000, 2**20)
"""How many alternatives to request in order to find a token among them: first the likely ones, then the whole vocabulary."""
_NAMES: Final = {"content": "prompt"}
"""The engine's name for a field that is tokenized → the client's."""
_BIAS: Final = 1_000.0
"""More than any difference between two tokens."""
_SPECIAL: Final = re.compile(r"[ _▁]?[<\[].*[>\]]", re.DOTALL)
"""The form of tokens that may end a generation, which no grammar allows before its own end.

Some other tokens have this form too.
"""
_fields: Final = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


class PromptToken(msgspec.Struct):
    """A token with its text, or with the bytes of a part of a character."""

    id: int
    piece: str | list[int]

    @property
    def data(self) -> bytes:
        """Its bytes."""
        return self.piece.encode() if isinstance(self.piece, str) else bytes(self.piece)

    @property
    def is_whole(self) -> bool:
        """Whether it ends at the end of a character."""
        return isinstance(self.piece, str)

    @property
    def fits_grammar(self) -> bool:
        """Whether an engine's grammar can demand this token."""
        piece = self.piece
        return isinstance(piece, str) and piece[:1] not in ("", "\0") and not _SPECIAL.fullmatch(piece)


class _Scored(msgspec.Struct):
    """An answer of an engine that scores prompts itself."""

    prompt_logprobs: list[list[Token]] = []


class _Tokenized(msgspec.Struct):
    tokens: list[PromptToken]


class _Alternative(TopToken, kw_only=True):
    id: int


class _Probability(_Alternative, kw_only=True):
    top_logprobs: list[_Alternative]


class _Probabilities(msgspec.Struct):
    completion_probabilities: list[_Probability] = []


_scored: Final = msgspec.json.Decoder(_Scored).decode
_pieces: Final = msgspec.json.Decoder(_Tokenized).decode
_probabilities: Final = msgspec.json.Decoder(_Probabilities).decode


def run_end(pieces: Sequence[PromptToken], begin: int, most: int = MAX_RUN_TOKENS) -> int:
    """Return the end of the run from ``begin`` that one request can score, with at most ``most`` tokens."""
    end = begin + 1
    if pieces[begin].fits_grammar:
        limit = min(len(pieces), begin + most)
        while end < limit and pieces[end].fits_grammar:
            end += 1
    return end


def run_request(before: Sequence[PromptToken], forced: Sequence[PromptToken], alternatives: int) -> dict[str, Any]:
    """Return the fields of a native completion that generates the tokens of one run, ``forced``, after the tokens ``before``."""
    fields: dict[str, Any] = {
        "prompt": [piece.id for piece in before],
        "n_predict": len(forced),
        "n_probs": max(1, alternatives),
        "temperature": 0,
        "samplers": ["top_k"],
        "top_k": 1,
    }
    if forced[0].fits_grammar:
        fields["grammar"] = "root ::= " + " ".join(f"<[{piece.id}]>" for piece in forced)
    else:
        fields["logit_bias"] = [[forced[0].id, _BIAS]]
    return fields


class Echo(NamedTuple):
    """What an echoing request wants."""

    prompts: list[str | list[int]]
    choices: int
    """Of each prompt."""
    alternatives: int | None
    """How many alternatives of each token get log probabilities; None: no log probabilities."""
    generates: bool
    """Whether to complete the prompt."""

    def complete(self, session: RequestSession, env: Environ, request: InferenceRequest) -> WholeAnswer:
        """Run ``request``, which generates at least one token, and return its answer with the prompts; as ``answer_stream.complete``."""
        return _EchoRun(session, env, request).answer(self)


class _EchoRun:
    """The requests on the bus for one such request."""

    def __init__(self, session: RequestSession, env: Environ, request: InferenceRequest) -> None:
        self._session, self._env, self._request = session, env, request
        self._earlier: Outcome | None = None
        """What the finished ones cost."""

    def answer(self, echo: Echo) -> WholeAnswer:
        """See :meth:`Echo.complete`."""
        if echo.alternatives is not None:
            _check_size(sum(len(prompt) for prompt in echo.prompts if not isinstance(prompt, str)))
        whole = self._ask(self._request)
        prompts = self._scored(echo, whole.body) if echo.alternatives is not None else self._texts(echo)
        context = request_context(self._env)
        context.inference, context.outcome = self._request.endpoint, self._earlier
        body = text_completion(whole.body, prompts, echo.choices, generates=echo.generates)
        return whole._replace(body=body, outcome=self._earlier or whole.outcome)

    def _texts(self, echo: Echo) -> list[EchoedPrompt]:
        texts = (each if isinstance(each, str) else text_of(self._tokens(each)) for each in echo.prompts)
        return [EchoedPrompt(text) for text in texts]

    def _scored(self, echo: Echo, answer: bytes) -> list[EchoedPrompt]:
        scores: list[list[Token]] = _read(_scored, answer).prompt_logprobs
        if not scores:
            pieces = [self._tokens(prompt) for prompt in echo.prompts]
            _check_size(sum(map(len, pieces)))
            scores = [self._scores(each, echo.alternatives or 0) for each in pieces]
        found = []
        for prompt, tokens in zip(echo.prompts, scores, strict=True):
            text = prompt if isinstance(prompt, str) else text_of(tokens)
            found.append(EchoedPrompt(text, prompt_logprobs(tokens, text)))
        return found

    def _tokens(self, prompt: str | list[int]) -> list[PromptToken]:
        fields = {"content": prompt, "add_special": isinstance(prompt, str), "with_pieces": True}
        found: _Tokenized = _read(_pieces, self._send("tokenize", fields, 0))
        return found.tokens

    def _scores(self, pieces: Sequence[PromptToken], alternatives: int) -> list[Token]:
        scores = [_token(piece) for piece in pieces[:1]]
        most = MAX_RUN_TOKENS
        while (begin := len(scores)) < len(pieces):
            forced = pieces[begin : run_end(pieces, begin, most)]
            found = self._generated if forced[0].is_whole else self._alternative
            scores += found(pieces[:begin], forced, alternatives)
            if len(scores) < begin + len(forced):
                most = 1
        return scores

    def _generated(
        self, before: Sequence[PromptToken], forced: Sequence[PromptToken], alternatives: int
    ) -> list[Token]:
        """Return the scores of the first tokens, usually of all. With a draft model, the engine scores only the first one."""
        pairs = zip(forced, self._probabilities(before, forced, alternatives), strict=False)
        return [_token(piece, each.logprob, each.top_logprobs[:alternatives]) for piece, each in pairs]

    def _alternative(
        self, before: Sequence[PromptToken], forced: Sequence[PromptToken], alternatives: int
    ) -> list[Token]:
        """Find a token that is not whole among the alternatives to another token."""
        (piece,) = forced
        for count in ALTERNATIVE_COUNTS:
            found = self._probabilities(before, self._filler, count)[0]
            for each in found.top_logprobs:
                if each.id == piece.id:
                    return [_token(piece, each.logprob, found.top_logprobs[:alternatives])]
        raise _not_scored(f"token {piece.id} is none of {len(found.top_logprobs)}")

    @cached_property
    def _filler(self) -> Sequence[PromptToken]:
        """A whole token."""
        return self._tokens("a")[-1:]

    def _probabilities(
        self, before: Sequence[PromptToken], forced: Sequence[PromptToken], alternatives: int
    ) -> list[_Probability]:
        """Return the engine's scores up to the first token that it did not generate, or did not compute itself; at least one."""
        answer = self._send("completion", run_request(before, forced, alternatives), 1)
        found: list[_Probability] = _read(_probabilities, answer).completion_probabilities
        pairs = zip(forced, found, strict=False)
        known = [each for _, each in takewhile(lambda pair: pair[0].id == pair[1].id and pair[1].top_logprobs, pairs)]
        if not known:
            raise _not_scored(f"{len(forced)} tokens after {len(before)}")
        return known

    def _send(self, endpoint: str, fields: dict[str, Any], weight: int) -> bytes:
        body = msgspec.json.encode({"model": self._request.model, **fields})
        request = replace(self._request, endpoint=endpoint, body=body, weight=weight, ttl=None, names=_NAMES)
        try:
            return self._ask(request).body
        except LemonbusError as problem:
            failure = problem.failure
            if failure.code is not Code.UNSUPPORTED and failure.param != "model":
                raise
            reason = f"`echo` with `logprobs` or token numbers is not served for this model: {failure.message}"
            raise invalid(reason, "echo") from None

    def _ask(self, request: InferenceRequest) -> WholeAnswer:
        whole = complete(self._session, self._env, replace(request, earlier=self._earlier))
        outcome = whole.outcome if self._earlier is None else total_outcome([self._earlier, whole.outcome])
        self._earlier = replace(outcome, token_times=b"")
        return whole


def text_of(tokens: Sequence[PromptToken] | Sequence[Token]) -> str:
    """Return the text of several tokens together."""
    return b"".join(token.data for token in tokens).decode(errors="replace")


def _token(piece: PromptToken, logprob: float = 0.0, alternatives: Sequence[_Alternative] = ()) -> Token:
    return Token(logprob=logprob, bytes=list(piece.data), top_logprobs=[*alternatives])


def _not_scored(detail: str) -> LemonbusError:
    return Failure(Code.BACKEND_ERROR, "the engine did not score the prompt", detail=detail).raised()


def _check_size(tokens: int) -> None:
    if tokens > MAX_SCORED_TOKENS:
        reason = (
            f"the prompts have {tokens} tokens; `echo` with `logprobs` scores at most {MAX_SCORED_TOKENS} in one request: "
            "send fewer prompts at once"
        )
        raise invalid(reason, "prompt")


def _read(decode: Any, answer: bytes) -> Any:
    try:
        return decode(answer)
    except DECODE_ERRORS as problem:
        raise not_understood(problem) from None
