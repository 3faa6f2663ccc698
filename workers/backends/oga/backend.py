"""ONNX Runtime GenAI: folders of ONNX files through our server for its library, or through AMD's ``ryzenai-server``."""

from __future__ import annotations

import re
from pathlib import Path
from typing import ClassVar, Final

import msgspec

from protocol.config.settings import Settings
from protocol.failures import DECODE_ERRORS, Code, Failure, invalid
from protocol.models.memory import HOST, MemoryEstimate, PlaceNeed
from protocol.models.recipes import AUTOMATIC_CTX_SIZE, IdleCheck, ModelSpec, RecipeDescriptor
from workers.backends import llama_server_api
from workers.backends.engine_facts import EngineFacts, ModelFacts
from workers.backends.engine_request import EngineRequest
from workers.backends.error_texts import ErrorTexts
from workers.backends.llama_server_api import SAMPLING_FLAGS
from workers.backends.oga.descriptor import DESCRIPTORS
from workers.backends.program_backend import ProgramBackend
from workers.backends.recipe import Recipe
from workers.backends.requests.generation_request import generation_request, positive_number
from workers.backends.requests.sampling_defaults import apply_sampling_defaults
from workers.files import genai
from workers.stream.chunk_translator import ChunkTranslator

KEY: Final = "OGA_API_KEY"
PROCESS_BYTES: Final = 40 * 1024**2
"""What the server keeps beside the model: Python and the library."""
_ELEMENT_BYTES: Final = 4
"""Bytes of a number in the cache. Models for other devices than the processor have fewer."""
_INPUT_TOKENS: Final = "chat/completions/input_tokens"
_LINE: Final = re.compile(rb"[\d-]+ [\d:.]+ \[([VIWEF]):[^\]]*\] ?")
"""The prefix of ONNX Runtime's lines."""
_LEVELS: Final = {b"V": "debug", b"I": "debug", b"W": "debug", b"E": "warning", b"F": "error"}
"""Its warnings are hints about speed, and its errors are also in the answers."""


class _Health(msgspec.Struct):
    max_context_length: int = 0


_HEALTH: Final = msgspec.json.Decoder(_Health)
_OBJECT: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])


class OgaBackend(ProgramBackend):
    """One model folder behind one server. The recipes differ in the devices that their models are made for."""

    descriptor: ClassVar[RecipeDescriptor] = DESCRIPTORS[0]
    hidden: ClassVar[tuple[str, ...]] = ("OGA_",)
    error_texts: ClassVar[ErrorTexts] = llama_server_api.ERROR_TEXTS

    def __init__(self, spec: ModelSpec, settings: Settings) -> None:
        """Resolve the backend; raises ``invalid_request`` for an unknown one."""
        super().__init__(spec, settings)
        self._had_request = False

    @property
    def key(self) -> str:
        """See :attr:`Backend.key`; ``ryzenai-server`` has none."""
        return super().key if self._is_own_server else ""

    @property
    def program(self) -> str:
        """Name of the program."""
        return "oga-server" if self._is_own_server else self._program.executable

    @property
    def alias(self) -> str:
        """The model's name; ``ryzenai-server`` uses the name of its folder."""
        return self.spec.name if self._is_own_server else Path(self.spec.path).name

    @property
    def slots(self) -> int:
        """The library works on one answer at a time."""
        return self._program.slots

    @property
    def context(self) -> int:
        """Context tokens of each request: the option, limited by the model's own maximum; 0 if unknown."""
        asked, made_for = max(0, int(self._option("ctx_size"))), self.trained_context
        return min(asked, made_for) if asked and made_for else asked or made_for

    def _installation_hint(self) -> str:
        cure = super()._installation_hint()
        return cure if self._is_own_server else f"{cure} on PATH"

    def examine(self) -> ModelFacts:
        """See :meth:`Backend.examine`."""
        found = genai.read(Path(self.spec.path))
        return ModelFacts(found.size, found.context, token_bytes=found.cache_elements * _ELEMENT_BYTES)

    def memory(self) -> MemoryEstimate:
        """See :meth:`Backend.memory`: a request reserves the cache for all of its context."""
        facts = self.model_facts
        automatic = int(self._option("ctx_size")) == AUTOMATIC_CTX_SIZE and facts.context > 0
        context = 0 if automatic else self.context
        cache = facts.token_bytes * (context or facts.context)
        need = PlaceNeed(facts.size + PROCESS_BYTES, facts.token_bytes, lazy=cache)
        parts = {"weights": facts.size, "cache": cache, "process": PROCESS_BYTES}
        return MemoryEstimate({HOST: need}, context, facts.context if automatic else 0, parts=parts)

    def command(self, port: int) -> list[str]:
        """See :meth:`Backend.command`."""
        words = self._start_command()
        words += ["-m", self.spec.path, "--port", str(port)]
        if not self._is_own_server:
            # Its own default is less than most models support.
            return words + (["--ctx-size", str(self.context)] if self.context else [])
        words += ["--ctx-size", str(self.context), "--host", "127.0.0.1", "-a", self.alias, *SAMPLING_FLAGS]
        threads = int(self._option("threads"))
        return words + (["-t", str(threads)] if threads else [])

    def environment(self, inherited: dict[str, str]) -> dict[str, str]:
        """See :meth:`Backend.environment`."""
        kept = super().environment(inherited)
        if self.key:
            # Not on the command line, which all users of the machine can read.
            kept[KEY] = self.key
        return kept

    def parse(self, line: bytes) -> tuple[str, str]:
        """See :meth:`Backend.parse`: ONNX Runtime puts time, level and source file before a line."""
        if self._had_request and not self._is_own_server:
            return "trace", line.decode("utf-8", "replace")  # it may print the prompt
        found = _LINE.match(line)
        level = _LEVELS[found[1]] if found else "debug"
        return level, line[found.end() if found else 0 :].decode("utf-8", "replace")

    def warm_up(self) -> EngineRequest:
        """One token: a model with operators that the machine cannot run fails here, not in a request."""
        return EngineRequest("POST", "/v1/completions", b'{"prompt":"a","max_tokens":1,"temperature":0}')

    def about(self) -> EngineRequest:
        """See :meth:`Backend.about`."""
        return EngineRequest("GET", "/props" if self._is_own_server else "/health")

    def facts(self, answer: bytes) -> EngineFacts:
        """See :meth:`Backend.facts`."""
        if not self._is_own_server:
            try:
                return EngineFacts(self.slots, _HEALTH.decode(answer).max_context_length or self.context)
            except DECODE_ERRORS as problem:
                raise ValueError(str(problem)) from problem
        facts, installation = llama_server_api.facts(answer), self._installation()
        return facts._replace(version=installation.record.version if installation else facts.version.rpartition(" ")[2])

    def idle_check(self, endpoint: str) -> str:
        """See :meth:`Backend.idle_check`; ``ryzenai-server`` does not notice that a client hangs up."""
        return super().idle_check(endpoint) if self._is_own_server else IdleCheck.ANSWER

    def busy(self) -> EngineRequest:
        """See :meth:`Backend.busy`."""
        return EngineRequest("GET", "/slots")

    def processing(self, answer: bytes) -> int:
        """See :meth:`Backend.processing`."""
        return llama_server_api.processing(answer)

    def request(self, endpoint: str, query: str, body: bytes, stream: bool) -> EngineRequest:
        """See :meth:`Backend.request`."""
        del query
        self.refuse_unserved(endpoint)
        if endpoint == _INPUT_TOKENS:
            if not self._is_own_server:
                raise self.unserved(endpoint)
            return EngineRequest("POST", f"/v1/{endpoint}", body, prompts=0)
        if self._is_own_server:
            names = self.descriptor.sampling
            generation = generation_request(endpoint, body, stream, self.sampling, names, complete_streams=True)
            return generation._replace(in_turn=True)
        return self._ryzenai_request(endpoint, body, stream)

    def _ryzenai_request(self, endpoint: str, body: bytes, stream: bool) -> EngineRequest:
        """Return a request for ``ryzenai-server``, which reports usage only in whole answers."""
        try:
            fields = _OBJECT.decode(body)
            apply_sampling_defaults(endpoint, fields, self.sampling, self.descriptor.sampling)
        except DECODE_ERRORS as problem:
            raise Failure(Code.INVALID_JSON, f"the request is not a JSON object: {problem}").raised() from None
        if positive_number(fields.get("n")) > 1:
            raise invalid("ryzenai-server gives one answer to a request: `n` must be 1", "n")
        self._had_request = True
        fields.pop("return_stop_reason", None)  # ryzenai-server does not say it
        fields["model"] = msgspec.Raw(msgspec.json.encode(self.alias))
        fields["stream"] = msgspec.Raw(msgspec.json.encode(stream))
        translate = ChunkTranslator(endpoint == "chat/completions", self.alias).feed if stream else None
        written = msgspec.json.encode(fields)
        return EngineRequest("POST", f"/v1/{endpoint}", written, streamed=stream, translate=translate)


class _OgaHybridBackend(OgaBackend):
    descriptor: ClassVar[RecipeDescriptor] = DESCRIPTORS[1]


class _OgaNpuBackend(OgaBackend):
    descriptor: ClassVar[RecipeDescriptor] = DESCRIPTORS[2]


class _RyzenAiBackend(OgaBackend):
    descriptor: ClassVar[RecipeDescriptor] = DESCRIPTORS[3]


RECIPES: Final = [
    Recipe(each.descriptor, each) for each in (OgaBackend, _OgaHybridBackend, _OgaNpuBackend, _RyzenAiBackend)
]
