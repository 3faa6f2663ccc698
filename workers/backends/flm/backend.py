"""FastFlowLM: models on AMD's NPU, through the ``flm serve`` that is installed on the machine.

It binds its port before it loads its model, and answers after the load even if the load failed, so a warm-up request
decides. It has one NPU and works on one request at a time. ``model`` in a request must be the tag that it was started
with: for another tag it would change the model, and perhaps download it first.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar, Final

import msgspec

from protocol.config.settings import Settings
from protocol.failures import DECODE_ERRORS, Code, Failure, invalid
from protocol.models.recipes import ModelSpec, ModelType, RecipeDescriptor
from protocol.models.sampling import TOKEN_LIMIT_FIELDS
from protocol.wire import form_data
from workers.backends.base import Backend
from workers.backends.engine_facts import EngineFacts, ModelFacts
from workers.backends.engine_request import EngineRequest
from workers.backends.error_texts import ErrorTexts
from workers.backends.flm.descriptor import DESCRIPTOR
from workers.backends.flm.flags import FLAGS
from workers.backends.flm.responses import convert_embeddings, convert_flm_transcription
from workers.backends.flm.user_arguments import OPTION, check_flm_args
from workers.backends.recipe import Recipe
from workers.backends.requests.accepted_audio import check_measured
from workers.backends.requests.sampling_defaults import apply_sampling_defaults
from workers.stream.chunk_translator import ChunkTranslator
from workers.stream.transcript_events import streamed

SWITCHES: Final[dict[str, str]] = {ModelType.EMBEDDING: "--embed", ModelType.AUDIO: "--asr"}
"""Type of a model → the switch that makes flm serve it; flm then takes no tag."""
FIXED_MODELS: Final[dict[str, str]] = {ModelType.EMBEDDING: "embed-gemma:300m", ModelType.AUDIO: "whisper-v3:turbo"}
"""The only model that flm has of that type."""
MIN_CONTEXT: Final = 512
"""flm raises any smaller value to this."""
DEFAULT_CONTEXT: Final = 32_768
"""Default context tokens of most of its models."""
MIN_PREFILL_TOKENS_PER_S: Final = 50.0
"""Prompt tokens a second that every model reaches: flm sends nothing while it reads a prompt. Large models read 140."""
MAX_CONNECTIONS: Final = "65535"
"""Connections: flm does not notice in its count that a client hangs up, and takes ten by default."""

_NULL: Final = msgspec.Raw(b"null")
_OBJECT: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])
_LOG_LINE: Final = re.compile(rb"\[(FLM|Linux|Windows|ERROR|Error|WARNING|Warning)\]  *(.*)")
_LEVELS: Final = {b"ERROR": "error", b"Error": "error", b"WARNING": "warning", b"Warning": "warning"}
_REQUEST: Final = b"Incoming Request"


class _Version(msgspec.Struct):
    version: str = ""


class _NpuStatus(msgspec.Struct):
    active_requests: int


class FlmBackend(Backend):
    """One model behind one ``flm serve``."""

    descriptor: ClassVar[RecipeDescriptor] = DESCRIPTOR
    hidden: ClassVar[tuple[str, ...]] = ("FLM_SERVE_PORT",)
    error_texts: ClassVar[ErrorTexts] = ErrorTexts(
        too_long=re.compile("^Max length reached"),
        busy=re.compile("^NPU is in use"),  # another program also uses it
        caller_mistake=re.compile(r"\[json\.exception\."),
        internals=re.compile(r"\[json\.exception\.[\w.]+\] ?"),
    )

    def __init__(self, spec: ModelSpec, settings: Settings) -> None:
        """Check the arguments; raises ``invalid_request``."""
        super().__init__(spec, settings)
        self._words = check_flm_args(str(spec.options.get(OPTION, "")))
        self._had_request = False
        """Whether the engine has had a request, so that its output may contain a client's prompt."""

    @property
    def key(self) -> str:
        """Empty: flm has no keys."""
        return ""

    @property
    def program(self) -> str:
        """See :attr:`Backend.program`."""
        return "flm"

    @property
    def alias(self) -> str:
        """The tag: flm's name for the model."""
        return self.spec.path

    @property
    def slots(self) -> int:
        """One: the machine has one NPU."""
        return 1

    @property
    def context(self) -> int:
        """Context tokens of each request; 0 if left to the model."""
        asked = int(self.spec.options.get("ctx_size", self.settings.ctx_size))
        return max(asked, MIN_CONTEXT) if asked > 0 else 0

    @property
    def silence(self) -> float:
        """As long as the longest prompt may take, because flm is silent while it reads one."""
        return max(self.settings.silence, (self.context or DEFAULT_CONTEXT) / MIN_PREFILL_TOKENS_PER_S)

    def check(self) -> None:
        """See :meth:`Backend.check`."""
        name = self.spec.name
        only = FIXED_MODELS.get(self.spec.type, self.alias)
        if self.alias != only:
            reason = f"the {self.spec.type} model that flm serves is {only}, not {self.alias}"
            raise Failure(Code.UNSUPPORTED, f"{name} cannot be loaded: {reason}", model=name).raised()
        if shutil.which(self.program) is None:
            reason = f"flm was not found on PATH; see {DESCRIPTOR.backends[0].home}"
            raise Failure(Code.BACKEND_NOT_INSTALLED, f"{name} cannot be loaded: {reason}", model=name).raised()

    def examine(self) -> ModelFacts:
        """See :meth:`Backend.examine`: flm keeps its files itself; only their size is known."""
        return ModelFacts(self.spec.size)

    def command(self, port: int) -> list[str]:
        """See :meth:`Backend.command`. ``--cors 0``: web pages must not use the engine directly."""
        words = [shutil.which(self.program) or self.program, "serve"]
        switch = SWITCHES.get(self.spec.type)
        if switch:
            words += [switch, "1"]
        else:
            words += [self.alias]
            if self.context:
                words += ["--ctx-len", str(self.context)]
        words += ["--port", str(port), "--host", "127.0.0.1", "--quiet"]
        for flag, value in (("--cors", "0"), ("--socket", MAX_CONNECTIONS)):
            if FLAGS.value_of(self._words, flag) is None:
                words += [flag, value]
        return words + self._words

    def environment(self, inherited: dict[str, str]) -> dict[str, str]:
        """See :meth:`Backend.environment`."""
        kept = {
            name: value
            for name, value in inherited.items()
            if not name.startswith(("LEMONBUS_", "LEMONADE_", "PYTHON", *self.hidden)) and name != "HF_TOKEN"
        }
        return kept | self.configured_environment()

    def prepare(self) -> None:
        """Do nothing: flm has its own directories."""

    def parse(self, line: bytes) -> tuple[str, str]:
        """See :meth:`Backend.parse`: flm prints every prompt, so lines after a request have level ``trace``."""
        if _REQUEST in line:
            self._had_request = True
        found = _LOG_LINE.match(line)
        text = (found[2] if found else line).decode("utf-8", "replace")
        if found:
            return _LEVELS.get(found[1], "debug"), text
        return "trace" if self._had_request else "debug", text

    def health(self) -> EngineRequest:
        """See :meth:`Backend.health`."""
        return EngineRequest("GET", "/api/tags")

    def warm_up(self) -> EngineRequest | None:
        """One token or one vector, because nothing else shows whether the model was loaded.

        If a speech model fails, flm ends.
        """
        if self.spec.type == ModelType.AUDIO:
            return None
        if self.spec.type == ModelType.EMBEDDING:
            return EngineRequest("POST", "/v1/embeddings", self._encoded({"input": "a"}))
        asked = {"messages": [{"role": "user", "content": "a"}], "max_tokens": 1}
        return EngineRequest("POST", "/v1/chat/completions", self._encoded(asked))

    def _encoded(self, fields: dict[str, Any]) -> bytes:
        return msgspec.json.encode({"model": self.alias, **fields})

    def about(self) -> EngineRequest:
        """See :meth:`Backend.about`."""
        return EngineRequest("GET", "/api/version")

    def facts(self, answer: bytes) -> EngineFacts:
        """See :meth:`Backend.facts`."""
        try:
            return EngineFacts(self.slots, self.context, msgspec.json.decode(answer, type=_Version).version)
        except DECODE_ERRORS as problem:
            raise ValueError(str(problem)) from problem

    def busy(self) -> EngineRequest:
        """See :meth:`Backend.busy`."""
        return EngineRequest("GET", "/api/npu/status")

    def processing(self, answer: bytes) -> int:
        """See :meth:`Backend.processing`."""
        try:
            return msgspec.json.decode(answer, type=_NpuStatus).active_requests
        except DECODE_ERRORS as problem:
            raise ValueError(str(problem)) from problem

    def request(self, endpoint: str, _query: str, body: bytes, stream: bool) -> EngineRequest:
        """See :meth:`Backend.request`.

        Generations are always streams, because only then flm notices that a client hangs up.
        """
        self.refuse_unserved(endpoint)
        if endpoint == "audio/transcriptions":
            return self._transcription_request(body, stream)
        try:
            # flm refuses null as a wrong value.
            fields = {name: raw for name, raw in _OBJECT.decode(body).items() if raw != _NULL}
            fields["model"] = msgspec.Raw(msgspec.json.encode(self.alias))
            if endpoint == "embeddings":
                coded = bytes(fields.pop("encoding_format", b"")) == b'"base64"'
                return EngineRequest(
                    "POST", "/v1/embeddings", msgspec.json.encode(fields), translate=self._vectors(coded)
                )
            return self._generation_request(endpoint, fields)
        except DECODE_ERRORS as problem:
            raise Failure(Code.INVALID_JSON, f"the request is not a JSON object: {problem}").raised() from None

    def _generation_request(self, endpoint: str, fields: dict[str, msgspec.Raw]) -> EngineRequest:
        fields.pop("return_stop_reason", None)  # flm does not say it
        if bytes(fields.pop("n", b"1")) != b"1":
            raise invalid("flm gives one answer to a request: `n` must be 1", "n")
        if bytes(fields.pop("logprobs", b"false")) != b"false":
            raise invalid("flm has no log probabilities: leave `logprobs` out", "logprobs")
        apply_sampling_defaults(endpoint, fields, self.sampling, DESCRIPTOR.sampling)
        limits = [raw for name in TOKEN_LIMIT_FIELDS if (raw := fields.pop(name, None)) is not None]
        if limits and bytes(limits[0]).isdigit():  # a negative limit means no limit
            fields["max_tokens"] = limits[0]
        if "repeat_penalty" in fields:
            fields["repetition_penalty"] = fields.pop("repeat_penalty")
        options = _OBJECT.decode(fields.pop("stream_options", b"{}"))
        chat = endpoint == "chat/completions"
        if not chat:
            fields["prompt"] = _one_prompt(fields.get("prompt", _NULL))
        fields["stream"] = msgspec.Raw(b"true")
        return EngineRequest(
            "POST",
            f"/v1/{endpoint}",
            msgspec.json.encode(fields),
            streamed=True,
            usage=bytes(options.get("include_usage", b"")) == b"true",
            translate=ChunkTranslator(chat, self.alias).feed,
        )

    def _transcription_request(self, body: bytes, stream: bool) -> EngineRequest:
        try:
            boundary = form_data.boundary_from_body(body)
            check_measured(form_data.parse(boundary, body), self.program)
        except ValueError as problem:
            raise invalid(f"the request is not a form: {problem}") from None
        kind = f"{form_data.MEDIA_TYPE}; boundary={boundary}"
        translate = streamed(convert_flm_transcription) if stream else convert_flm_transcription
        return EngineRequest("POST", "/v1/audio/transcriptions", body, content_type=kind, translate=translate)

    def _vectors(self, coded: bool) -> Callable[[bytes], bytes]:
        return partial(convert_embeddings, model=self.alias, coded=coded)


def _one_prompt(raw: msgspec.Raw) -> msgspec.Raw:
    prompt = msgspec.json.decode(raw)
    if isinstance(prompt, list) and len(prompt) == 1:
        prompt = prompt[0]
    if not isinstance(prompt, str):
        raise invalid("flm completes one prompt of text: `prompt` must be a string", "prompt")
    return msgspec.Raw(msgspec.json.encode(prompt))


RECIPE: Final = Recipe(DESCRIPTOR, FlmBackend, FLAGS, check_flm_args)
