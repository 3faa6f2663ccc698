"""One model in ONNX Runtime GenAI: its tokens, its chat template, and one generation at a time.

The library keeps Python's lock while it computes, so a long prompt is given to it in pieces: between two of them
the other threads have their turn, and whoever hung up is noticed.
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
from workers.engines.oga_server.request import OgaRequest, flatten_messages, prompt_token_ids
from workers.engines.oga_server.response_writer import Logprobs

PREFILL_BATCH_TOKENS: Final = 64
"""Prompt tokens at a time; more are no faster on a processor."""
_SEEDS: Final = 2**31


class OgaSampling(NamedTuple):
    """How is sampled what a request says nothing of."""

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0


class OgaModel:
    """A model that is loaded."""

    def __init__(self, folder: Path, threads: int, context: int, sampling: OgaSampling) -> None:
        """Load it, on the processor; raises what the library raises.

        ``threads``: 0 for as many as there are processors.  ``context``: 0 for all the model was made for.
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
        # Threads that spin while they wait take the processor from everybody else on the machine.
        options = {
            "intra_op_num_threads": threads or max(1, len(os.sched_getaffinity(0))),
            "session.intra_op.allow_spinning": "0",
        }
        config.overlay(json.dumps({"model": {"decoder": {"session_options": options}}}))
        self._model = library.Model(config)
        self._tokenizer = library.Tokenizer(self._model)
        self._encoding = threading.Lock()
        self._ends = {int(token) for token in self._tokenizer.eos_token_ids}
        self._has_template = _has_template(folder)

    def tokens_of(self, request: OgaRequest) -> Sequence[int]:
        """Return the prompt's tokens; raises :class:`EngineHttpError`, also if they leave no room for an answer."""
        tokens = self._chat(request) if request.messages is not None else self._prompt(request.prompt)
        if len(tokens) == 0:
            tokens = [int(self._tokenizer.bos_token_id)]
        if len(tokens) >= self.context:
            raise EngineHttpError(
                f"the prompt has {len(tokens)} tokens, which leaves no room in the context of {self.context}",
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
            said = (str(problem).splitlines() or [""])[0]
            raise EngineHttpError(f"the model's chat template refuses the messages: {said}") from None
        return self._encoded(text, whole=True)

    def _prompt(self, prompt: str | list[Any] | None) -> Sequence[int]:
        if isinstance(prompt, list):
            tokens = prompt_token_ids(prompt, self.vocabulary)
            if tokens is not None:
                return tokens
            if len(prompt) != 1 or not isinstance(prompt[0], str):
                raise EngineHttpError("ONNX Runtime GenAI serves one prompt at a time here", 501, "not_supported_error")
            prompt = prompt[0]
        return self._encoded(prompt or "", whole=False)

    def _encoded(self, text: str, whole: bool) -> Sequence[int]:
        """Return the tokens of a text; one that is not ``whole`` lacks what the tokenizer wants at its beginning."""
        with self._encoding:
            self._tokenizer.update_options(add_special_tokens="false" if whole else "true")
            found: Sequence[int] = self._tokenizer.encode(text)
            return found

    def begin(self, tokens: Sequence[int], request: OgaRequest) -> OgaGeneration:
        """Return a generation that has not begun; raises what the library raises."""
        parameters = self._library.GeneratorParams(self._model)
        options = self._options(tokens, request)
        parameters.set_search_options(**options)
        generator = self._library.Generator(self._model, parameters)
        most = options["max_length"] - len(tokens)
        return OgaGeneration(generator, self._tokenizer, self._ends, tokens, most, request.likely)

    def _options(self, tokens: Sequence[int], request: OgaRequest) -> dict[str, Any]:
        temperature = self._sampling.temperature if request.temperature is None else request.temperature
        top_k = self._sampling.top_k if request.top_k is None else request.top_k
        longest = min(self.context, len(tokens) + request.most)
        options: dict[str, Any] = {
            "max_length": longest,
            "min_length": min(longest, len(tokens) + max(0, request.min_length or 0)),
            "do_sample": request.do_sample is not False and temperature > 0,
            "temperature": temperature or 1.0,
            "top_p": self._sampling.top_p if request.top_p is None else request.top_p,
            "top_k": top_k if 0 < top_k < self.vocabulary else 0,
            "repetition_penalty": request.repeat_penalty or 1.0,
        }
        if request.seed is not None and request.seed >= 0:
            options["random_seed"] = request.seed % _SEEDS
        return options


class OgaGeneration:
    """One answer in the making: :meth:`read` to its end, then :meth:`speak`."""

    def __init__(
        self, generator: Any, tokenizer: Any, ends: set[int], tokens: Sequence[int], most: int, likely: int | None
    ) -> None:
        """Of at most ``most`` tokens, until one of ``ends``; ``likely``: see :attr:`OgaRequest.likely`."""
        self._generator, self._tokenizer = generator, tokenizer
        self._tokens, self._ends, self._most, self._beside = tokens, ends, most, likely
        self._text = tokenizer.create_stream()
        self._likely: Logprobs = []
        self.count = 0
        """Tokens that were generated, the one that ends the answer included."""
        self.reason = "length"
        """Why it ended, in OpenAI's words."""

    def read(self) -> Iterator[int]:
        """Read the prompt; yield how much of it was read, every now and then."""
        for place in range(0, len(self._tokens), PREFILL_BATCH_TOKENS):
            piece = self._tokens[place : place + PREFILL_BATCH_TOKENS]
            self._generator.append_tokens(piece)
            yield place + len(piece)

    def speak(self) -> Iterator[str]:
        """Yield the answer's text, token by token; some show nothing."""
        for _ in range(self._most):
            scores = None if self._beside is None else self._generator.get_logits()
            self._generator.generate_next_token()
            token = int(self._generator.get_next_tokens()[0])
            self.count += 1
            if token in self._ends:
                self.reason = "stop"
                return
            if scores is not None and self._beside is not None:
                self._likely.append(token_logprobs(scores, token, self._beside, self._spelled))
            yield self._text.decode(token)

    def _spelled(self, token: int) -> str:
        return str(self._tokenizer.decode([token]))

    def likely(self) -> Logprobs | None:
        """Return the log probabilities of the tokens since the last time, None if they were not asked for."""
        if self._beside is None:
            return None
        taken, self._likely = self._likely, []
        return taken


def _has_template(folder: Path) -> bool:
    if (folder / "chat_template.jinja").is_file():
        return True
    try:
        return bool(json.loads((folder / "tokenizer_config.json").read_text("utf-8")).get("chat_template"))
    except (OSError, ValueError, AttributeError):
        return False
