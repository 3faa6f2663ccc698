"""One model in ONNX Runtime GenAI: its tokens, its chat template, and one generation at a time.

The library holds Python's global lock while it computes. A long prompt is therefore given to it in batches: between two
batches the other threads run, and a client that hung up is noticed.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from workers.engines.http_errors import EngineHttpError
from workers.engines.oga_server.logprobs import token_logprobs
from workers.engines.oga_server.penalties import TokenPenalties
from workers.engines.oga_server.prompt_cache import CachedGenerator, PromptCache, capacity_for, common_prefix_length
from workers.engines.oga_server.request import OgaRequest, flatten_messages, prompt_token_ids
from workers.engines.oga_server.response_writer import Logprobs

PREFILL_BATCH_TOKENS: Final = 64
"""Prompt tokens at a time; more are no faster on a processor."""
_SEEDS: Final = 2**31


class OgaSampling(NamedTuple):
    """Sampling options of requests that set none themselves."""

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0


class OgaModel:
    """A loaded model."""

    def __init__(self, folder: Path, threads: int, context: int, sampling: OgaSampling) -> None:
        """Load it, on the processor; raises what the library raises.

        ``threads``: 0 for as many as there are processors.  ``context``: 0 for the longest that the model supports.
        """
        import onnxruntime_genai as library  # noqa: PLC0415 - the command line is read without it

        library.disable_telemetry_events()
        self._library = library
        self._sampling = sampling
        self.build: str = f"onnxruntime-genai {library.__version__}"
        about = json.loads((folder / "genai_config.json").read_text("utf-8"))["model"]
        self.vocabulary = int(about["vocab_size"])
        most = int(about["context_length"])
        self.context = min(context, most) if context else most
        config = library.Config(str(folder))
        config.clear_providers()
        # Threads that spin while they wait take processor time from all other programs.
        options = {
            "intra_op_num_threads": threads or max(1, len(os.sched_getaffinity(0))),
            "session.intra_op.allow_spinning": "0",
        }
        config.overlay(json.dumps({"model": {"decoder": {"session_options": options}}}))
        self._model = library.Model(config)
        self._tokenizer = library.Tokenizer(self._model)
        self._tokenizer_lock = threading.Lock()
        self._end_tokens = {int(token) for token in self._tokenizer.eos_token_ids}
        self._has_template = _has_template(folder)
        self._prompt_cache = PromptCache()

    def tokens_of(self, request: OgaRequest) -> Sequence[int]:
        """Return the prompt's tokens; raises :class:`EngineHttpError`, also if they leave no token of the context for an answer."""
        tokens = self._chat(request) if request.messages is not None else self._prompt(request.prompt)
        if len(tokens) == 0:
            tokens = [int(self._tokenizer.bos_token_id)]
        if len(tokens) >= self.context:
            raise EngineHttpError(
                f"the prompt has {len(tokens)} tokens, which leaves no token of the context of {self.context}",
                kind="exceed_context_size_error",
                n_prompt_tokens=len(tokens),
                n_ctx=self.context,
            )
        return tokens

    def _chat(self, request: OgaRequest) -> Sequence[int]:
        if not self._has_template:
            raise EngineHttpError("this model has no chat template: it serves completions only")
        messages = flatten_messages(request.messages or [])
        try:
            text = self._tokenizer.apply_chat_template(json.dumps(messages), add_generation_prompt=True)
        except RuntimeError as problem:
            reason = (str(problem).splitlines() or [""])[0]
            raise EngineHttpError(f"the model's chat template refuses the messages: {reason}") from None
        return self._encode(text, whole=True)

    def _prompt(self, prompt: str | list[Any] | None) -> Sequence[int]:
        if isinstance(prompt, list):
            tokens = prompt_token_ids(prompt, self.vocabulary)
            if tokens is not None:
                return tokens
            if len(prompt) != 1 or not isinstance(prompt[0], str):
                raise EngineHttpError("ONNX Runtime GenAI serves one prompt at a time here", 501, "not_supported_error")
            prompt = prompt[0]
        return self._encode(prompt or "", whole=False)

    def _encode(self, text: str, whole: bool) -> Sequence[int]:
        """Return the tokens of a text; one that is not ``whole`` lacks the token that some tokenizers put first."""
        with self._tokenizer_lock:
            self._tokenizer.update_options(add_special_tokens="false" if whole else "true")
            found: Sequence[int] = self._tokenizer.encode(text)
            return found

    def begin(self, tokens: Sequence[int], request: OgaRequest) -> OgaGeneration:
        """Return a generation that has not begun; raises what the library raises."""
        longest = min(self.context, len(tokens) + request.max_answer_tokens)
        sampling = self._sampling_options(request)
        fixed = tuple(sampling.values())
        reusable = request.cache_prompt is not False and "random_seed" not in sampling
        cached = self._prompt_cache.take(fixed, longest) if reusable else None
        if cached:
            capacity, parameters = cached.capacity, cached.parameters
        else:
            self._prompt_cache.clear()
            capacity = capacity_for(longest, self.context) if reusable else longest
            parameters = self._library.GeneratorParams(self._model)
            parameters.set_search_options(max_length=capacity, **sampling)
        # These two are read at every token.
        parameters.set_search_options(
            min_length=min(longest, len(tokens) + max(0, request.min_length or 0)),
            repetition_penalty=request.repeat_penalty or 1.0,
        )
        generator = cached.generator if cached else self._library.Generator(self._model, parameters)
        reused = 0
        if cached:
            reused = common_prefix_length(generator.get_sequence(0), tokens)
            generator.rewind_to(reused)
        return OgaGeneration(
            CachedGenerator(generator, parameters, fixed, capacity),
            self._tokenizer,
            self._end_tokens,
            tokens,
            reused,
            longest - len(tokens),
            request,
            self._prompt_cache if reusable else None,
        )

    def _sampling_options(self, request: OgaRequest) -> dict[str, Any]:
        """Return the options that the library reads only when a generator is made."""
        temperature = self._sampling.temperature if request.temperature is None else request.temperature
        if request.do_sample is False or temperature <= 0:
            return {"do_sample": False}
        top_k = self._sampling.top_k if request.top_k is None else request.top_k
        options: dict[str, Any] = {
            "do_sample": True,
            "temperature": temperature,
            "top_p": self._sampling.top_p if request.top_p is None else request.top_p,
            "top_k": top_k if 0 < top_k < self.vocabulary else 0,
        }
        if request.seed is not None and request.seed >= 0:
            options["random_seed"] = request.seed % _SEEDS
        return options


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
    ) -> None:
        """At most ``limit`` tokens, until one of ``end_tokens``; the generator has ``reused`` tokens of the prompt."""
        self._cached, self._generator, self._tokenizer = cached, cached.generator, tokenizer
        self._tokens, self._end_tokens, self._limit = tokens, end_tokens, limit
        self._top_logprobs = request.logprob_count
        self._penalties = TokenPenalties(request.presence_penalty or 0.0, request.frequency_penalty or 0.0)
        self._prompt_cache = prompt_cache
        self._text = tokenizer.create_stream()
        self._logprobs: Logprobs = []
        self.reused = reused
        """Tokens of the prompt that are not computed again."""
        self.count = 0
        """Tokens that were generated, the one that ends the answer included."""
        self.reason = "length"
        """Why it ended, in OpenAI's words."""

    def prefill(self) -> Iterator[int]:
        """Compute the prompt; yield after each batch how many of its tokens are done."""
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
            yield self._text.decode(token)

    def end(self) -> None:
        """Keep what was computed for the next prompt. Not to be called after an error of the library."""
        if self._prompt_cache is not None:
            self._prompt_cache.keep(self._cached)

    def _text_of(self, token: int) -> str:
        return str(self._tokenizer.decode([token]))

    def take_logprobs(self) -> Logprobs | None:
        """Return the log probabilities of the tokens since the last call, None if they were not asked for."""
        if self._top_logprobs is None:
            return None
        taken, self._logprobs = self._logprobs, []
        return taken


def _has_template(folder: Path) -> bool:
    if (folder / "chat_template.jinja").is_file():
        return True
    try:
        return bool(json.loads((folder / "tokenizer_config.json").read_text("utf-8")).get("chat_template"))
    except (OSError, ValueError, AttributeError):
        return False
