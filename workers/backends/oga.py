"""ONNX Runtime GenAI: folders of ONNX files through our server over its library, or through AMD's ``ryzenai-server``."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import sys
from pathlib import Path
from typing import ClassVar, Final

import msgspec

from protocol import installed
from protocol.failures import Code, Failure, invalid
from protocol.installed import Installation
from protocol.recipes import Descriptor, IdleCheck, ModelSpec
from protocol.sampling import PARAMS
from protocol.settings import Settings
from workers import genai
from workers.backends.backend import Backend, EngineFacts, EngineRequest, Examined
from workers.backends.oga_recipe import DESCRIPTORS
from workers.chunks import Chunks
from workers.generation import generation
from workers.sampling import settle

__all__ = ["CLASSES", "DESCRIPTORS", "Oga"]

KEY: Final = "OGA_API_KEY"
_SAMPLING: Final = [
    word
    for flag, name in (("--temp", "temperature"), ("--top-p", "top_p"), ("--top-k", "top_k"))
    for word in (flag, str(PARAMS[name].default))
]
"""The documents' defaults. ``max_length`` is none: an answer ends by itself, with its context, or where somebody said so."""
_LINE: Final = re.compile(rb"(?:\x1b\[[\d;]*m)*[\d-]+ [\d:.]+ \[([VIWEF]):[^\]]*\] ?")
"""How ONNX Runtime begins a line."""
_LEVELS: Final = {b"V": "debug", b"I": "debug", b"W": "debug", b"E": "warning", b"F": "error"}
"""It warns of what it could do faster, and its errors are in the answers too."""
_COLOUR: Final = re.compile(r"\x1b\[[\d;]*m")


class _Slot(msgspec.Struct):
    is_processing: bool = False


class _Generation(msgspec.Struct):
    n_ctx: int


class _Props(msgspec.Struct):
    total_slots: int
    default_generation_settings: _Generation
    build_info: str = ""


class _Health(msgspec.Struct):
    max_context_length: int = 0


_SLOTS: Final = msgspec.json.Decoder(list[_Slot])
_PROPS: Final = msgspec.json.Decoder(_Props)
_HEALTH: Final = msgspec.json.Decoder(_Health)
_OBJECT: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])


class Oga(Backend):
    """One model folder behind one server. The recipes of the family differ in what their models were made for."""

    descriptor: ClassVar[Descriptor] = DESCRIPTORS[0]

    def __init__(self, spec: ModelSpec, settings: Settings) -> None:
        """Resolve the backend; raises ``invalid_request`` for one that is not there."""
        super().__init__(spec, settings)
        named = self.descriptor.backend(spec.backend)
        if named is None:
            option = f"{self.descriptor.recipe}_backend"
            raise invalid(f"{self.descriptor.recipe} has no backend {spec.backend!r}", option)
        self._program = named
        self._asked = False

    def _number(self, name: str) -> int:
        declared = self.descriptor.option(name)
        fallback = declared.default if declared and declared.default is not None else 0
        return int(self.spec.options.get(name, getattr(self.settings, name, fallback)))

    @property
    def _ours(self) -> bool:
        return bool(self._program.requires)

    @property
    def key(self) -> str:
        """See :attr:`Backend.key`; ``ryzenai-server`` knows of none."""
        return super().key if self._ours else ""

    @property
    def program(self) -> str:
        """What runs."""
        return "oga-server" if self._ours else self._program.executable

    @property
    def alias(self) -> str:
        """The model's name; ``ryzenai-server`` calls it by its folder."""
        return self.spec.name if self._ours else Path(self.spec.path).name

    @property
    def slots(self) -> int:
        """The library works on one answer at a time."""
        return self._program.slots

    @property
    def context(self) -> int:
        """Tokens each request may use: what was asked for, as far as the model was made for that many; 0 if unknown."""
        asked, made_for = self._number("ctx_size"), self.trained_context
        return min(asked, made_for) if asked and made_for else asked or made_for

    def _installation(self) -> Installation | None:
        recipe, _, name = (self._program.shares or f"{self.descriptor.recipe}:{self._program.name}").partition(":")
        found = installed.find(self.settings.cache_dir, recipe, name)
        return found[0] if found else None

    def _executable(self) -> list[str] | None:
        if self._ours:
            if self._installation() is None and importlib.util.find_spec(self._program.requires) is None:
                return None
            return [sys.executable, "-m", self._program.executable.removeprefix("module:")]
        found = shutil.which(self._program.executable)
        return [found] if found else None

    def check(self) -> None:
        """See :meth:`Backend.check`."""
        if self._executable() is None:
            recipe, name = self.descriptor.recipe, self._program.name
            cure = f"`lemonbus backends install {recipe}:{name}` does that"
            if not self._ours:
                cure = f"{self._program.executable} was not found on PATH"
            raise Failure(
                Code.LOAD_FAILED, f"the {recipe} backend {name!r} is not installed: {cure}", model=self.spec.name
            ).raised()

    def examine(self) -> Examined:
        """See :meth:`Backend.examine`."""
        return Examined(*genai.read(Path(self.spec.path)))

    def command(self, port: int) -> list[str]:
        """See :meth:`Backend.command`."""
        words = self._executable()
        if words is None:
            self.check()
            raise AssertionError
        words += ["-m", self.spec.path, "--port", str(port)]
        if not self._ours:
            # Its own default is less than most models were made for.
            return words + (["--ctx-size", str(self.context)] if self.context else [])
        words += ["--ctx-size", str(self.context), "--host", "127.0.0.1", "-a", self.alias, *_SAMPLING]
        threads = self._number("threads")
        return words + (["-t", str(threads)] if threads else [])

    def environment(self, inherited: dict[str, str]) -> dict[str, str]:
        """See :meth:`Backend.environment`."""
        kept = {
            name: value
            for name, value in inherited.items()
            if not name.startswith(("OGA_", "LEMONBUS_", "LEMONADE_")) and name not in ("HF_TOKEN", "PYTHONSTARTUP")
        }
        there = self._installation() if self._ours else None
        if there:
            kept["PYTHONPATH"] = os.pathsep.join(filter(None, (kept.get("PYTHONPATH", ""), str(there.packages))))
        elif not self._ours:
            kept.pop("PYTHONPATH", None)
        kept["GOMP_SPINCOUNT"] = "300"
        if self.key:
            # Not on the command line, which everybody on the machine can read.
            kept[KEY] = self.key
        return kept

    def prepare(self) -> None:
        """It keeps nothing."""

    def parse(self, line: bytes) -> tuple[str, str] | None:
        """See :meth:`Backend.parse`: ONNX Runtime says time, level and place before a line."""
        if self._asked and not self._ours:
            return "trace", line.decode("utf-8", "replace")  # it may print what it was asked
        found = _LINE.match(line)
        level = _LEVELS[found[1]] if found else "debug"
        return level, _COLOUR.sub("", line[found.end() if found else 0 :].decode("utf-8", "replace"))

    def warm_up(self) -> EngineRequest:
        """One token: a model whose operators the machine cannot run shows it here, not in a request."""
        return EngineRequest("POST", "/v1/completions", b'{"prompt":"a","max_tokens":1,"temperature":0}')

    def about(self) -> EngineRequest:
        """See :meth:`Backend.about`."""
        return EngineRequest("GET", "/props" if self._ours else "/health")

    def facts(self, answer: bytes) -> EngineFacts:
        """See :meth:`Backend.facts`."""
        try:
            if not self._ours:
                return EngineFacts(self.slots, _HEALTH.decode(answer).max_context_length or self.context)
            props = _PROPS.decode(answer)
        except msgspec.MsgspecError as problem:
            raise ValueError(str(problem)) from problem
        there = self._installation()
        version = there.record.version if there else props.build_info.rpartition(" ")[2]
        return EngineFacts(props.total_slots, props.default_generation_settings.n_ctx, version)

    def idle_check(self, endpoint: str) -> str:
        """See :meth:`Backend.idle_check`; ``ryzenai-server`` does not notice who hangs up."""
        return super().idle_check(endpoint) if self._ours else IdleCheck.ANSWER

    def busy(self) -> EngineRequest:
        """See :meth:`Backend.busy`."""
        return EngineRequest("GET", "/slots")

    def processing(self, answer: bytes) -> int:
        """See :meth:`Backend.processing`."""
        try:
            return sum(slot.is_processing for slot in _SLOTS.decode(answer))
        except msgspec.MsgspecError as problem:
            raise ValueError(str(problem)) from problem

    def request(self, endpoint: str, query: str, body: bytes, stream: bool) -> EngineRequest:
        """See :meth:`Backend.request`."""
        del query
        if endpoint not in self.descriptor.serves.get(self.spec.type, []):
            raise Failure(
                Code.UNSUPPORTED, f"{self.spec.name} is a model for {self.spec.type}; it does not serve {endpoint}"
            ).raised()
        if self._ours:
            return generation(endpoint, body, stream, self.sampling, self.descriptor.sampling)
        return self._theirs(endpoint, body, stream)

    def _theirs(self, endpoint: str, body: bytes, stream: bool) -> EngineRequest:
        """Return a request for ``ryzenai-server``, which tells usage in whole answers only."""
        try:
            fields = _OBJECT.decode(body)
            settle(fields, self.sampling, self.descriptor.sampling)
        except (msgspec.MsgspecError, RecursionError) as problem:
            raise Failure(Code.INVALID_JSON, f"the request is not a JSON object: {problem}").raised() from None
        self._asked = True
        fields["model"] = msgspec.Raw(msgspec.json.encode(self.alias))
        fields["stream"] = msgspec.Raw(msgspec.json.encode(stream))
        translate = Chunks(endpoint == "chat/completions", self.alias).feed if stream else None
        written = msgspec.json.encode(fields)
        return EngineRequest("POST", f"/v1/{endpoint}", written, streamed=stream, translate=translate)


class _Hybrid(Oga):
    descriptor: ClassVar[Descriptor] = DESCRIPTORS[1]


class _Npu(Oga):
    descriptor: ClassVar[Descriptor] = DESCRIPTORS[2]


class _RyzenAi(Oga):
    descriptor: ClassVar[Descriptor] = DESCRIPTORS[3]


CLASSES: Final[dict[str, type[Backend]]] = {each.descriptor.recipe: each for each in (Oga, _Hybrid, _Npu, _RyzenAi)}
"""Recipe of the family → what runs it."""
