"""A backend for a server of any make with OpenAI's API: what is the same for a program of the operator's and for another machine.

A server that is not known says little about itself. Its slots are counted here. A request is cancelled by closing its
connection, and the server counts as idle again when it answers its health path: whether it has really stopped, it does not
say. A stream is complete when each of its choices has a ``finish_reason``, and the response has ended as HTTP demands; an end
marker alone, or a closed connection, is not an end.
"""

from __future__ import annotations

import os
import re
from functools import cached_property
from pathlib import Path
from typing import ClassVar, Final

import msgspec

from protocol.config.model_settings import EngineSettings, RemoteSettings
from protocol.config.settings import Settings
from protocol.failures import DECODE_ERRORS, HTTP_ERRORS, Code, Failure
from protocol.models.recipes import IdleCheck, ModelSpec, ModelType
from protocol.wire import form_data
from protocol.wire.speech import SPEECH
from workers.backends.base import Backend
from workers.backends.engine_facts import EngineFacts, ModelFacts
from workers.backends.engine_request import EngineRequest
from workers.backends.error_texts import ErrorTexts, without_key
from workers.backends.requests import openai_forms
from workers.backends.requests.generation_request import count_prompts, positive_number
from workers.backends.requests.sampling_defaults import apply_sampling_defaults
from workers.stream.chunk_translator import ChunkTranslator
from workers.stream.transcript_events import streamed

SERVES: Final[dict[str, list[str]]] = {
    ModelType.LLM: ["chat/completions", "completions"],
    ModelType.EMBEDDING: ["embeddings"],
    ModelType.RERANKING: ["rerank"],
    ModelType.AUDIO: ["audio/transcriptions", "audio/translations"],
    ModelType.IMAGE: ["images/generations", "images/edits"],
    ModelType.TTS: [SPEECH],
}
"""Type of a model → endpoints of the internal format that a server may have."""
IDLE_CHECK: Final = dict.fromkeys((each for served in SERVES.values() for each in served), IdleCheck.CLOSED.value)
SAMPLING: Final = {name: name for name in ("temperature", "top_p", "top_k")} | {
    "max_length": "max_tokens",
    "do_sample": "temperature",
}
DEFAULT_HEALTH: Final = "/health"
MODELS: Final = "/v1/models"
_ABSENT: Final = frozenset({404, 405, 501})
"""Statuses of a path that a server does not have."""
_NAMES_MODEL: Final = re.compile(rb"model", re.IGNORECASE)


class KeyUnreadableError(Exception):
    """Why there is no key. No part of the key is in it."""

    def __init__(self, what: str, detail: str) -> None:
        """Say what is missing. ``detail``: names the file or the variable, for administrators."""
        super().__init__(f"{what} with its key is missing, empty or not readable")
        self.detail = detail


def read_key(section: EngineSettings | RemoteSettings) -> str:
    """Return the key that a section names, empty if it names none; raises :class:`KeyUnreadableError`."""
    file, variable = section.api_key_file, section.api_key_env
    if not (file or variable):
        return ""
    problem = ""
    try:
        found = Path(file).read_text(encoding="ascii").strip() if file else os.environ.get(variable or "", "")
    except OSError as error:
        found, problem = "", error.strerror or ""
    except ValueError:
        found = ""
    if found and found.isascii() and found.isprintable():
        return found
    detail = f"{file or variable}: {problem or 'not one line of printable ASCII'}"
    raise KeyUnreadableError("the file" if file else "the variable", detail)


class OpenAiServerBackend(Backend):
    """One model behind a server that is not known."""

    error_texts: ClassVar[ErrorTexts] = ErrorTexts(
        too_long=re.compile(
            r"maximum context length|context_length_exceeded|exceed_context_size|longer than the maximum"
        ),
        busy_status=503,
    )
    answers_while_busy: ClassVar[bool] = False
    busy_status: ClassVar[int] = 0
    default_slots: ClassVar[int]

    def __init__(self, spec: ModelSpec, settings: Settings) -> None:
        """Read the keys of the section."""
        super().__init__(spec, settings)
        self.section = msgspec.convert(spec.engine, EngineSettings)
        self._alias = self.section.served_name or spec.name
        self._health = self.section.health or DEFAULT_HEALTH
        self._had_request = False

    @property
    def alias(self) -> str:
        """What the server calls the model."""
        return self._alias

    @property
    def slots(self) -> int:
        """As many as the section says: the server does not report them."""
        return self.section.slots or self.default_slots

    @property
    def load_timeout(self) -> float:
        """See :attr:`Backend.load_timeout`."""
        return self.section.start_timeout or super().load_timeout

    def examine(self) -> ModelFacts:
        """See :meth:`Backend.examine`: there are no files."""
        return ModelFacts(0)

    def parse(self, line: bytes) -> tuple[str, str]:
        """See :meth:`Backend.parse`. A server may print what clients send: after a request, lines have the level ``trace``.

        A line with a word such as ERROR has that level.
        """
        text = line.decode("utf-8", "replace")
        word = _LEVEL.search(text)
        return _LEVELS[word[word.lastindex or 0].lower()] if word else "trace" if self._had_request else "debug", text

    @cached_property
    def configured_key(self) -> str:
        """The key that the section names, empty if it names none; raises ``model_unusable`` if it is not there."""
        try:
            return read_key(self.section)
        except KeyUnreadableError as problem:
            name = self.spec.name
            reason = f"{name} cannot be loaded: {problem}"
            raise Failure(Code.MODEL_UNUSABLE, reason, model=name, detail=problem.detail).raised() from None

    # Readiness.

    def health(self) -> EngineRequest:
        """See :meth:`Backend.health`."""
        return EngineRequest("GET", self._health)

    def is_healthy(self, status: int) -> bool:
        """See :meth:`Backend.is_healthy`. A server without the usual path is asked for its models instead.

        If it does not have that path either, an HTTP answer is all that can be asked for.
        """
        if self.section.health is None and status in _ABSENT:
            if self._health == MODELS:
                return True
            self._health = MODELS
        return 200 <= status < 300

    def warm_up(self) -> EngineRequest | None:
        """Return None: what a request costs there is not known."""
        return None

    def about(self) -> EngineRequest:
        """See :meth:`Backend.about`."""
        return EngineRequest("GET", MODELS)

    def facts(self, answer: bytes) -> EngineFacts:
        """See :meth:`Backend.facts`. A server need not list its models."""
        listed = openai_forms.listed_models(answer)
        if self.section.served_name is None and self._alias not in listed and len(listed) == 1:
            self._alias = next(iter(listed))
        return EngineFacts(self.slots, listed.get(self._alias, 0))

    def busy(self) -> EngineRequest:
        """See :meth:`Backend.busy`: a server that works on one request at a time answers when it has ended."""
        return self.health()

    def processing(self, _answer: bytes) -> int:
        """See :meth:`Backend.processing`: the slots of running requests are counted by the worker."""
        return 0

    # Requests.

    def request(self, endpoint: str, query: str, body: bytes, stream: bool) -> EngineRequest:
        """See :meth:`Backend.request`."""
        self.refuse_unserved(endpoint)
        self._had_request = True
        if query:
            raise self.unserved(endpoint)
        if endpoint in SERVES[ModelType.AUDIO]:
            return self._form(endpoint, openai_forms.audio_form(body, self.alias), stream)
        if endpoint == "images/edits":
            return self._form(endpoint, openai_forms.image_form(body, self.alias), stream)
        try:
            fields = openai_forms.request_fields(body, self.alias)
            if endpoint in ("chat/completions", "completions"):
                return self._generation(endpoint, fields, stream)
        except DECODE_ERRORS as problem:
            raise Failure(Code.INVALID_JSON, f"the request is not a JSON object: {problem}").raised() from None
        if endpoint == SPEECH:
            return EngineRequest("POST", f"/v1/{SPEECH}", msgspec.json.encode(fields), streamed=True)
        fields.pop("stream", None)
        if endpoint == "images/generations":
            fields["response_format"] = openai_forms.raw_json("b64_json")
        return EngineRequest("POST", f"/v1/{endpoint}", msgspec.json.encode(fields), translate=self._whole)

    def _generation(self, endpoint: str, fields: openai_forms.Fields, stream: bool) -> EngineRequest:
        """Ask for a stream only if the client wants one: a server of any make may leave something out of streams."""
        apply_sampling_defaults(endpoint, fields, self.sampling, self.descriptor.sampling)
        options = msgspec.json.decode(fields.pop("stream_options", b"{}"), type=dict[str, bool])
        prompts = count_prompts(fields.get("prompt")) if endpoint == "completions" else 1
        # Its count of tokens is of all completions together, as for one prompt that many answers follow.
        completions = prompts * positive_number(fields.get("n"))
        translator = ChunkTranslator(endpoint == "chat/completions", self.alias)
        fields["stream"] = openai_forms.raw_json(stream)
        if stream and self.section.stream_usage:
            fields["stream_options"] = openai_forms.raw_json(options | {"include_usage": True})
        return EngineRequest(
            "POST",
            f"/v1/{endpoint}",
            msgspec.json.encode(fields),
            streamed=stream,
            usage=options.get("include_usage", False),
            prompts=completions,
            in_turn=True,
            end_marker=False,
            translate=translator.feed if stream else self._whole,
            restart=translator.restart,
        )

    def _form(self, endpoint: str, body: bytes, stream: bool) -> EngineRequest:
        kind = f"{form_data.MEDIA_TYPE}; boundary={form_data.boundary_from_body(body)}"
        is_audio = endpoint in SERVES[ModelType.AUDIO]
        whole = openai_forms.transcript if is_audio else self._whole
        translate = streamed(whole) if stream and is_audio else whole
        return EngineRequest("POST", f"/v1/{endpoint}", body, content_type=kind, translate=translate)

    def _whole(self, answer: bytes) -> bytes:
        return openai_forms.whole_answer(answer, self.alias)

    def refusal(self, endpoint: str, status: int, body: bytes) -> Failure | None:
        """See :meth:`Backend.refusal`.

        A path that the server does not have is not the caller's error. Nor is a name of the model or a key that the server does
        not accept: lemonbus sends both.
        """
        name = self.spec.name
        if status in _ABSENT and not (status == 404 and _NAMES_MODEL.search(body)):
            what = f"{name} cannot do this: {self.program}, which runs it, does not have /v1/{endpoint}"
            return Failure(Code.UNSUPPORTED, what, model=name)
        if status == HTTP_ERRORS[Code.LOOP_DETECTED].status:
            what = f"the request for {name} goes round in a loop of servers: correct the url of one of them"
            return Failure(Code.LOOP_DETECTED, what, model=name)
        shown = without_key(body, self.key)[:300].decode("utf-8", "replace")
        if 300 <= status < 400:
            what = f"{self.program} redirects the request for {name}, which is not followed: correct the url in the configuration"
        elif status == 404:
            what = f"{self.program} does not know a model {self.alias!r}: correct served_name of {name} in the configuration"
        elif status in (401, 403):
            what = f"{self.program} does not accept the key that the configuration has for {name}"
        else:
            return None
        return Failure(Code.BACKEND_ERROR, what, model=name, detail=f"{status}: {shown}", status=502)


_LEVELS: Final = {"critical": "error", "fatal": "error", "error": "error", "warning": "warning", "warn": "warning"}
_LEVEL: Final = re.compile(r"\b(CRITICAL|FATAL|ERROR|Error|WARNING|Warning|WARN)\b|\[(critical|error|warning|warn)\]")
