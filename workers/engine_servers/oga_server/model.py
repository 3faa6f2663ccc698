"""One model in ONNX Runtime GenAI: its tokens, its chat template, its generators."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

from workers.engine_servers.http_server import EngineHttpError
from workers.engine_servers.oga_server.chat_prompt import TemplateInput, template_input
from workers.engine_servers.oga_server.chat_template import read_chat_template
from workers.engine_servers.oga_server.generation import OgaGeneration
from workers.engine_servers.oga_server.guidance import Guidance, guidance_error, guidance_of
from workers.engine_servers.oga_server.prompt_cache import (
    CachedGenerator,
    PromptCache,
    capacity_for,
    common_prefix_length,
)
from workers.engine_servers.oga_server.request import OgaRequest, field_error, prompt_token_ids, split_prompts

_SEEDS: Final = 2**31


class OgaSampling(NamedTuple):
    """Sampling options of requests that do not set their own."""

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
        self._template = read_chat_template(folder)
        self.tool_format = self._template.tool_format
        markers = self.tool_format.markers if self.tool_format else ()
        self._marker_tokens = {text: int(self._tokenizer.to_token_id(text)) for text in markers}
        self._prompt_cache = PromptCache()

    def prompts_of(self, request: OgaRequest) -> list[Sequence[int]]:
        """Return the tokens of each prompt; raises :class:`EngineHttpError`, also if one leaves no space in the context for an answer."""
        if request.messages is not None:
            return [self._checked(self._chat(request))]
        return [self._checked(self._prompt(each)) for each in split_prompts(request.prompt)]

    def _checked(self, tokens: Sequence[int]) -> Sequence[int]:
        if len(tokens) == 0:
            tokens = [int(self._tokenizer.bos_token_id)]
        if len(tokens) >= self.context:
            raise EngineHttpError(
                f"the prompt has {len(tokens)} tokens, which fills the context of {self.context}",
                kind="exceed_context_size_error",
                n_prompt_tokens=len(tokens),
                n_ctx=self.context,
            )
        return tokens

    def _chat(self, request: OgaRequest) -> Sequence[int]:
        if not self._template.exists:
            raise EngineHttpError("this model has no chat template: it serves completions only")
        tools = msgspec.to_builtins(request.offered_tools)
        given = template_input(request.messages or [], tools, self.tool_format, shows_calls=self._template.shows_calls)
        try:
            text = self._rendered(given, request.chat_template_kwargs or {})
        except RuntimeError as problem:
            reason = (str(problem).splitlines() or [""])[0]
            raise EngineHttpError(f"the model's chat template refuses the messages: {reason}") from None
        return self._encode(text, whole=True)

    def _rendered(self, given: TemplateInput, variables: dict[str, Any]) -> str:
        # For some templates, the library simplifies the schemas of `tools`, but not those of this variable.
        tools = given.tools
        if tools and self._template.takes_custom_tools:
            variables, tools = {**variables, "custom_tools": json.loads(tools)}, None
        with self._tokenizer_lock:
            self._tokenizer.update_options(chat_template_kwargs=json.dumps(variables))
            return str(self._tokenizer.apply_chat_template(given.messages, tools=tools))

    def _prompt(self, prompt: Any) -> Sequence[int]:
        if isinstance(prompt, list):
            return prompt_token_ids(prompt, self.vocabulary)
        if not isinstance(prompt, str):
            raise field_error("prompt", "must be a text, a list of token numbers, or a list of such prompts")
        return self._encode(prompt, whole=False)

    def _encode(self, text: str, whole: bool) -> Sequence[int]:
        """Return the tokens of a text. If it is not ``whole``, the token that some tokenizers put first is missing."""
        with self._tokenizer_lock:
            self._tokenizer.update_options(add_special_tokens="false" if whole else "true")
            found: Sequence[int] = self._tokenizer.encode(text)
            return found

    def guidance(self, request: OgaRequest) -> Guidance | None:
        """Return the grammar of the answer, None for any text; raises :class:`EngineHttpError`."""
        special = {text: self._marker_tokens[text] for text in self._template.special_markers}
        return guidance_of(request, self.tool_format, special)

    def begin(
        self,
        tokens: Sequence[int],
        request: OgaRequest,
        guidance: Guidance | None = None,
        choice: int = 0,
        *,
        reuse: bool = True,
    ) -> OgaGeneration:
        """Return a generation that has not begun; raises what the library raises, or :class:`EngineHttpError` for the guidance.

        ``choice`` counts the answers to the same prompt, each of which has its own seed. ``reuse``: whether what was
        computed may be used again.
        """
        longest = min(self.context, len(tokens) + request.max_answer_tokens)
        sampling = self._sampling_options(request, choice)
        fixed = tuple(sampling.values())
        reusable = reuse and request.cache_prompt is not False and "random_seed" not in sampling and guidance is None
        cached = self._prompt_cache.take(fixed, longest) if reusable else None
        if cached:
            capacity, parameters = cached.capacity, cached.parameters
        else:
            self._prompt_cache.clear()
            capacity = capacity_for(longest, self.context) if reusable else longest
            parameters = self._library.GeneratorParams(self._model)
            parameters.set_search_options(max_length=capacity, **sampling)
        # A grammar decides itself where an answer may end; the library fails on an answer that goes on.
        least = 0 if guidance else max(0, request.min_length or 0)
        # These two are read at every token.
        parameters.set_search_options(
            min_length=min(longest, len(tokens) + least),
            repetition_penalty=request.repeat_penalty or 1.0,
        )
        generator = cached.generator if cached else self._new_generator(parameters, guidance)
        reused = 0
        if cached:
            reused = common_prefix_length(generator.get_sequence(0), tokens)
            generator.rewind_to(reused)
        shown = {number: text for text, number in self._marker_tokens.items()} if request.offered_tools else {}
        return OgaGeneration(
            CachedGenerator(generator, parameters, fixed, capacity),
            self._tokenizer,
            self._end_tokens,
            tokens,
            reused,
            longest - len(tokens),
            request,
            self._prompt_cache if reusable else None,
            shown,
        )

    def _new_generator(self, parameters: Any, guidance: Guidance | None) -> Any:
        if guidance is None:
            return self._library.Generator(self._model, parameters)
        try:
            parameters.set_guidance("lark_grammar", guidance.grammar)
            return self._library.Generator(self._model, parameters)
        except (RuntimeError, AttributeError) as problem:  # a schema that it cannot follow, or a build without guidance
            raise guidance_error(problem, guidance.field) from None

    def _sampling_options(self, request: OgaRequest, choice: int) -> dict[str, Any]:
        """Return the options that the library only reads when a generator is made."""
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
            options["random_seed"] = (request.seed + choice) % _SEEDS
        return options
