"""Kokoro-82M: speech from text, through our server over ONNX Runtime.

It speaks one text at a time, and stops within a sentence when its client hangs up.
"""

from __future__ import annotations

import importlib.util
import re
import shutil
from functools import cached_property
from pathlib import Path
from typing import ClassVar, Final

import msgspec

from protocol.failures import DECODE_ERRORS, Code, Failure, invalid
from protocol.models.memory import HOST, MemoryEstimate, PlaceNeed
from protocol.models.recipes import RecipeDescriptor
from protocol.wire.speech import SPEECH
from workers.backends import llama_server_api
from workers.backends.engine_facts import EngineFacts, ModelFacts
from workers.backends.engine_request import EngineRequest
from workers.backends.error_texts import ErrorTexts
from workers.backends.kokoro.descriptor import DESCRIPTOR, KEY, PACKAGE, SUFFIXES, identify
from workers.backends.kokoro.spoken_input import InputError, unspoken
from workers.backends.kokoro.voice_names import VoiceError, language_of, voices_of
from workers.backends.package_version import package_version
from workers.backends.program_backend import ProgramBackend
from workers.backends.recipe import Recipe
from workers.files import onnx
from workers.files.errors import BrokenError
from workers.files.voices import Voices

ESPEAK: Final = "espeak-ng"
COMPUTE_BYTES: Final = 400 * 1024 * 1024
"""What the engine needs besides its weights: the library, the dictionaries, and the work on one piece."""
_LEXICON: Final = "lexicon"
_ENCODER: Final = "av"
"""The package with which our server writes sound."""


class _SpeechFields(msgspec.Struct):
    input: str = ""
    voice: str = ""
    instructions: str = ""


_FIELDS: Final = msgspec.json.Decoder(_SpeechFields)


class KokoroBackend(ProgramBackend):
    """One model with its voices behind one server."""

    descriptor: ClassVar[RecipeDescriptor] = DESCRIPTOR
    hidden: ClassVar[tuple[str, ...]] = ("KOKORO_",)
    error_texts: ClassVar[ErrorTexts] = ErrorTexts(field=re.compile(r"`(input|voice)`: "))
    program = "kokoro-server"
    slots = 1

    @property
    def alias(self) -> str:
        """The model's name."""
        return self.spec.name

    def check(self) -> None:
        """See :meth:`Backend.check`."""
        super().check()
        if not self._has_package(_ENCODER):
            what = f"the kokoro backend {self._program.name!r} lacks the package {_ENCODER}, which writes sound"
            cure = self._installation_hint()
            raise Failure(Code.BACKEND_NOT_INSTALLED, f"{what}: {cure}", model=self.spec.name).raised()
        if not self._lexicon and not shutil.which(ESPEAK):
            what = (
                f"{self.spec.name} has no dictionary of pronunciations: install the package misaki beside lemonbus, or the "
                f"program {ESPEAK} (`apt-get install {ESPEAK}`)"
            )
            raise Failure(Code.BACKEND_NOT_INSTALLED, what, model=self.spec.name).raised()

    @property
    def _lexicon(self) -> str:
        """The folder with the dictionaries: beside the model, or in the package misaki; empty if there is none."""
        beside = Path(self.spec.path).parent / _LEXICON
        if beside.is_dir():
            return str(beside)
        found = importlib.util.find_spec("misaki")
        places = list(found.submodule_search_locations or []) if found else []
        return str(Path(places[0]) / "data") if places else ""

    def examine(self) -> ModelFacts:
        """See :meth:`Backend.examine`."""
        path = Path(self.spec.path)
        onnx.check(path)
        voices = Voices(path)
        if not voices.names:
            raise BrokenError("there are no voices beside it (voices/NAME.bin, or an archive voices-v1.0.bin)")
        return ModelFacts(path.stat().st_size + voices.size, cached=False)

    @cached_property
    def _voices(self) -> list[str]:
        """The names of the voices; none if they cannot be read: the engine then says why."""
        try:
            return Voices(Path(self.spec.path)).names
        except (OSError, BrokenError):
            return []

    def memory(self) -> MemoryEstimate:
        """See :meth:`Backend.memory`."""
        weights = Path(self.spec.path).stat().st_size
        return MemoryEstimate(
            {HOST: PlaceNeed(weights + COMPUTE_BYTES)}, parts={"weights": weights, "compute": COMPUTE_BYTES}
        )

    def command(self, port: int) -> list[str]:
        """See :meth:`Backend.command`."""
        words = self._start_command()
        words += ["-m", self.spec.path, "--host", "127.0.0.1", "--port", str(port), "-a", self.alias]
        if self._lexicon:
            words += ["--lexicon", self._lexicon]
        if espeak := shutil.which(ESPEAK):
            words += ["--espeak", espeak]
        threads = int(self._option("threads"))
        return words + (["-t", str(threads)] if threads else [])

    def environment(self, inherited: dict[str, str]) -> dict[str, str]:
        """See :meth:`Backend.environment`. The key is not on the command line, which all users of the machine can read."""
        return {**super().environment(inherited), KEY: self.key}

    def parse(self, line: bytes) -> tuple[str, str]:
        """See :meth:`Backend.parse`."""
        text = line.decode("utf-8", "replace")
        return "warning" if "[ERROR]" in text else "debug", text

    def warm_up(self) -> EngineRequest:
        """One word: a model with operators that the machine cannot run fails here, not in a request."""
        return self._speech(b'{"input":"a","response_format":"pcm"}')

    def about(self) -> EngineRequest:
        """See :meth:`Backend.about`."""
        return self.health()

    def facts(self, _answer: bytes) -> EngineFacts:
        """See :meth:`Backend.facts`. The engine reports nothing about itself."""
        installation = self._installation()
        return EngineFacts(self.slots, 0, installation.record.version if installation else package_version(PACKAGE))

    def busy(self) -> EngineRequest:
        """See :meth:`Backend.busy`."""
        return EngineRequest("GET", "/slots")

    def processing(self, answer: bytes) -> int:
        """See :meth:`Backend.processing`."""
        return llama_server_api.processing(answer)

    def request(self, endpoint: str, query: str, body: bytes, stream: bool) -> EngineRequest:
        """See :meth:`Backend.request`."""
        self.refuse_unserved(endpoint)
        if query or not stream:
            raise self.unserved(endpoint)
        warnings = []
        try:
            fields = _FIELDS.decode(body)
            if self._voices:
                warnings = unspoken(fields.input, language_of(voices_of(fields.voice, self._voices)))
        except InputError as problem:
            raise invalid(str(problem), "input") from None
        except VoiceError as problem:
            raise invalid(str(problem), "voice") from None
        except DECODE_ERRORS as problem:
            raise Failure(Code.INVALID_JSON, f"the request cannot be read: {problem}").raised() from None
        if fields.instructions:
            warnings.append("`instructions` has no effect: Kokoro has none")
        return self._speech(body)._replace(warning="; ".join(warnings))

    def _speech(self, body: bytes) -> EngineRequest:
        return EngineRequest("POST", f"/v1/{SPEECH}", body, streamed=True)


RECIPE: Final = Recipe(DESCRIPTOR, KokoroBackend, identify=identify, identified_suffixes=SUFFIXES)
