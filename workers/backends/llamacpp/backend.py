"""llama.cpp: GGUF models through llama-server: our own over xllamacpp, a release's, or the user's."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar, Final

from protocol.config.settings import Settings
from protocol.models.memory import MemoryEstimate
from protocol.models.recipes import AUTOMATIC_CTX_SIZE, ModelSpec, ModelType, Provision, RecipeDescriptor
from protocol.runtime import logs
from protocol.runtime.accounts import check_user
from workers.backends import llama_server_api
from workers.backends.engine_facts import EngineFacts, ModelFacts
from workers.backends.engine_request import EngineRequest
from workers.backends.error_texts import ErrorTexts
from workers.backends.llamacpp import engine_texts, flags
from workers.backends.llamacpp.command_line import (
    MAX_INPUT_TOKENS,
    TYPE_FLAGS,
    prompt_cache_mebibytes,
    runs_on_device,
    server_arguments,
)
from workers.backends.llamacpp.descriptor import DESCRIPTOR, SUFFIXES, UNCACHED, UNCACHED_SLOTS, identify
from workers.backends.llamacpp.flags import FLAGS
from workers.backends.llamacpp.memory.companions import read_companions
from workers.backends.llamacpp.memory.device_choice import engine_devices, with_fitting_layers
from workers.backends.llamacpp.memory.estimate import estimate
from workers.backends.llamacpp.memory.model_shape import model_shape
from workers.backends.llamacpp.requests.translation import RequestFacts, engine_request
from workers.backends.llamacpp.slot_files import CacheFacts, LlamaSlotFiles, cache_facts, slot_request
from workers.backends.llamacpp.user_arguments import check_llamacpp_args, slots_of
from workers.backends.program_backend import ProgramBackend
from workers.backends.recipe import Recipe
from workers.backends.slot_files import SlotFiles
from workers.files import gguf

DEFAULT_CONTEXT: Final = 4096
"""Assumed for a model that does not say what it was trained for."""
ALL_LAYERS: Final = 99
"""Layers that a device takes: more than any model has."""


class LlamaCppBackend(ProgramBackend):
    """One GGUF model behind one llama-server."""

    descriptor: ClassVar[RecipeDescriptor] = DESCRIPTOR
    hidden: ClassVar[tuple[str, ...]] = ("LLAMA_",)
    error_texts: ClassVar[ErrorTexts] = engine_texts.ERROR_TEXTS
    stack_bytes: ClassVar[int] = 256 * 1024**2
    """It parses JSON answers with recursion, about 2 KiB for each level, and a client's schema may demand any depth."""
    program_setting: ClassVar[str] = "llama_server"
    arguments_option: ClassVar[str] = "llamacpp_args"

    def __init__(self, spec: ModelSpec, settings: Settings) -> None:
        """Resolve the backend and the options; raises ``invalid_request`` for invalid ones."""
        super().__init__(spec, settings)
        self._words = check_llamacpp_args(str(self._option("llamacpp_args")))
        # Kept, because each end of a request asks for the slots.
        self._asked_slots = slots_of(self._words, int(self._option("slots")))
        self._drafts = FLAGS.value_of(self._words, "--model-draft", "--spec-type") not in (None, "none")
        """Whether a draft model guesses tokens."""
        self._headers: list[gguf.GgufHeader] = []
        """Those of the model's files, once they were read."""
        self._projector: gguf.GgufHeader | None = None
        self._had_request = False
        self._takes_tools = True
        """Whether the model's chat template has a place for tools; known when the engine is ready."""
        self._slot_context = 0
        """Context tokens of one slot, as the engine says; 0 before it is ready."""

    @property
    def program(self) -> str:
        """Both backends run llama.cpp's server."""
        return "llama-server"

    @property
    def alias(self) -> str:
        """The name in the engine's chunks. llama-server splits it at commas."""
        return self.spec.name.replace(",", "_")

    @property
    def slots(self) -> int:
        """The number in ``-np`` in the arguments, else the option, else a default."""
        return self._asked_slots or (self._program.slots if self.model_facts.cached else UNCACHED_SLOTS)

    @property
    def context(self) -> int:
        """Context tokens of each request, at most those that the model was trained for; 0 if left to the engine.

        llama-server gives a request no more than this, and reserves memory for all of it.
        """
        asked, trained = max(0, int(self._option("ctx_size"))), self.trained_context
        overridden = FLAGS.value_of(self._words, "--override-kv") is not None
        return min(asked, trained) if asked and trained and not overridden else asked or trained

    @property
    def _chooses_context(self) -> bool:
        """Whether the context is to be chosen by the memory that there is."""
        return int(self._option("ctx_size")) == AUTOMATIC_CTX_SIZE and self.model_facts.cached

    @property
    def most_context(self) -> int:
        """See :meth:`Backend.most_context`: an encoder reads an input in one batch."""
        trained = self.trained_context
        return min(trained or MAX_INPUT_TOKENS, MAX_INPUT_TOKENS) if self.spec.type in TYPE_FLAGS else trained

    @property
    def gpu_layers(self) -> int:
        """The layers requested; otherwise, all of them on a device."""
        return int(self.spec.options.get("gpu_layers", ALL_LAYERS if runs_on_device(self._program) else 0))

    def _read_arguments(self) -> None:
        flags.parse(self._words)

    def examine(self) -> ModelFacts:
        """See :meth:`Backend.examine`."""
        size = context = parameters = 0
        architectures = set[str]()
        self._headers = []
        for path in gguf.parts_of(Path(self.spec.path)):
            size += path.stat().st_size
            header = gguf.read(path)
            self._headers.append(header)
            context = context or header.context_length
            parameters += header.parameters
            architectures.add(header.architecture)
        if self.spec.mmproj:
            projector = Path(self.spec.mmproj)
            size += projector.stat().st_size
            self._projector = gguf.read(projector)
        # A user's own llama-server may be so old that it has a cache for every model.
        cached = self._program.provision is Provision.USER or UNCACHED.isdisjoint(architectures)
        kept = sum(2 * (layer.key + layer.value) for layer in model_shape(self._headers).layers)
        return ModelFacts(size, context, parameters, kept, cached=cached)

    def memory(self) -> MemoryEstimate:
        """See :meth:`Backend.memory`."""
        words = self._server_arguments(0)
        companions = read_companions(words, self._projector)
        context = self.context or DEFAULT_CONTEXT
        devices = engine_devices(self._program, self.spec.devices, words, self.devices)

        def need(words: Sequence[str]) -> MemoryEstimate:
            return estimate(
                self._headers,
                companions,
                words,
                context=0 if self._chooses_context else context,
                slots=self.slots,
                largest=self.trained_context or DEFAULT_CONTEXT if self._chooses_context else 0,
                devices=[share for _, share in devices],
                own_server=self._is_own_server,
            )

        if not devices or FLAGS.value_of(words, "-ngl") is not None:
            return need(words)
        layers = len(model_shape(self._headers).layers) + 1
        return with_fitting_layers(need, words, [device for device, _ in devices], layers, context)

    def command(self, port: int) -> list[str]:
        """See :meth:`Backend.command`."""
        return self._start_command() + self._server_arguments(port)

    def _server_arguments(self, port: int) -> list[str]:
        return server_arguments(
            self.spec,
            self._program,
            self._words,
            port=port,
            alias=self.alias,
            slots=self.slots,
            context=self.context,
            gpu_layers=self.gpu_layers,
            threads=int(self._option("threads")),
            prompt_cache=prompt_cache_mebibytes(self.model_facts.token_bytes * self.context * self.slots),
            saved=self.saved,
            quiet=not logs.debug_enabled(),
        )

    @property
    def saved(self) -> Path:
        """The directory of saved prompt caches of this model, unless the user gave another."""
        folder = "".join(letter if letter.isalnum() or letter in "._-" else "_" for letter in self.spec.name)
        return Path(self.settings.cache_dir) / "slots" / folder.lstrip(".")

    @property
    def _saved_in(self) -> Path:
        return Path(FLAGS.value_of(self._words, "--slot-save-path") or self.saved)

    def prepare(self) -> None:
        """Make the directory for saved prompt caches, private to the user of the engine."""
        self.saved.parent.mkdir(parents=True, exist_ok=True)
        self.saved.mkdir(mode=0o700, exist_ok=True)
        if account := check_user(self.spec.limits.user):
            os.chown(self.saved, account.user, account.group)

    def slot_files(self) -> SlotFiles | None:
        """See :meth:`Backend.slot_files`.

        Only models that read conversations have something worth keeping. With adapters, each request may have scaled
        them differently, and the file of a slot does not say how.
        """
        asked = self._option("keep_prompt_cache") and self.settings.prompt_cache_bytes
        if (
            not asked
            or self.spec.type != ModelType.LLM
            or FLAGS.value_of(self._words, "--lora", "--lora-scaled") is not None
        ):
            return None
        return LlamaSlotFiles(self._saved_in, self.slots, self._cache_facts, lambda: self._had_request)

    def _cache_facts(self, facts: EngineFacts) -> CacheFacts:
        model = [*map(str, gguf.parts_of(Path(self.spec.path))), *filter(None, [self.spec.mmproj])]
        if not facts.version and not self._is_own_server:
            model += self._start_command()  # a program that does not tell its build: its file identifies it
        return cache_facts(model, self._words, self._program.name, facts, self.gpu_layers)

    def environment(self, inherited: dict[str, str]) -> dict[str, str]:
        """See :meth:`Backend.environment`."""
        kept = super().environment(inherited)
        if self.key:
            # Not on the command line, which all users of the machine can read.
            kept["LLAMA_API_KEY"] = self.key
        return kept

    def parse(self, line: bytes) -> tuple[str, str]:
        """See :meth:`Backend.parse`."""
        return engine_texts.parse_line(line, self._had_request)

    def file_problem(self, output: str) -> str:
        """See :meth:`Backend.file_problem`."""
        return engine_texts.file_problem(output)

    def load_problem(self, output: str) -> str:
        """See :meth:`Backend.load_problem`."""
        return engine_texts.load_problem(output)

    def warm_up(self) -> EngineRequest:
        """One token, one vector or one score: an engine built for another processor dies here, not in a request."""
        if self.spec.type == ModelType.EMBEDDING:
            return EngineRequest("POST", "/v1/embeddings", b'{"input":"a"}')
        if self.spec.type == ModelType.RERANKING:
            return EngineRequest("POST", "/v1/rerank", b'{"query":"a","documents":["a"]}')
        return EngineRequest("POST", "/v1/completions", b'{"prompt":"a","max_tokens":1,"cache_prompt":false}')

    def about(self) -> EngineRequest:
        """See :meth:`Backend.about`."""
        return EngineRequest("GET", "/props")

    def facts(self, answer: bytes) -> EngineFacts:
        """See :meth:`Backend.facts`."""
        facts = llama_server_api.facts(answer)
        self._takes_tools = facts.takes_tools
        self._slot_context = facts.context
        if self._program.requires:
            installation = self._installation()
            version = installation.record.version if installation else flags.version()
            self.reported_build, self.build = facts.version, version
            return facts._replace(version=version)
        return facts

    def metrics(self) -> EngineRequest:
        """See :meth:`Backend.metrics`."""
        return EngineRequest("GET", "/metrics")

    def busy(self) -> EngineRequest:
        """See :meth:`Backend.busy`."""
        return EngineRequest("GET", "/slots")

    def processing(self, answer: bytes) -> int:
        """See :meth:`Backend.processing`."""
        return llama_server_api.processing(answer)

    def request(self, endpoint: str, query: str, body: bytes, stream: bool) -> EngineRequest:
        """See :meth:`Backend.request`."""
        self._had_request = True
        self.refuse_unserved(endpoint)
        if endpoint == "slots":
            return slot_request(query, body, self._saved_in, self.slots, self.spec.name)
        if endpoint == "props":
            return EngineRequest("GET", "/props", prompts=0)
        facts = RequestFacts(
            slots=self.slots,
            context=self._slot_context,
            most_context=self.most_context,
            takes_tools=self._takes_tools,
            drafts=self._drafts,
            # A user's own may be too old for this.
            announces=self._program.provision is not Provision.USER,
            sampling=self.sampling,
        )
        return engine_request(endpoint, body, stream, facts)


RECIPE: Final = Recipe(DESCRIPTOR, LlamaCppBackend, FLAGS, check_llamacpp_args, identify, SUFFIXES)
