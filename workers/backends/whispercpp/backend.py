"""whisper.cpp: transcription of recordings, through its own HTTP server or ours over the pywhispercpp wheel.

It transcribes one recording at a time. When its client hangs up, it stops at the end of the present window (30 seconds
of the recording). A request without a recording is refused only when the recording before it has ended: this tells the
worker that the engine is idle.
"""

from __future__ import annotations

import io
import re
import wave
from functools import cached_property
from pathlib import Path
from typing import ClassVar, Final

from protocol.failures import Code, Failure, invalid
from protocol.models.memory import MemoryEstimate
from protocol.models.recipes import RecipeDescriptor
from protocol.wire import form_data
from protocol.wire.form_data import FormPart
from protocol.wire.transcripts import AUTO, LANGUAGES
from workers.backends.engine_facts import EngineFacts, EngineProgress, ModelFacts
from workers.backends.engine_request import EngineRequest
from workers.backends.flag_table import FlagError, FlagTable
from workers.backends.package_version import package_version
from workers.backends.program_backend import SingleSlotBackend
from workers.backends.recipe import Recipe
from workers.backends.requests.accepted_audio import check_measured
from workers.backends.whispercpp import flags
from workers.backends.whispercpp.descriptor import DESCRIPTOR, SUFFIXES, TRANSLATIONS, identify
from workers.backends.whispercpp.memory import whisper_memory
from workers.backends.whispercpp.transcription_answer import convert_transcription
from workers.files import ggml
from workers.files.errors import BrokenError
from workers.stream.transcript_events import SegmentStreamTranslator, streamed

_PROGRESS: Final = re.compile(rb"progress = +(\d{1,3})%")
_BROKEN_FILE: Final = re.compile(
    r"invalid model (data )?\(bad|not all tensors loaded|in model file|vocabulary is broken|bad ftype"
)
"""Reasons why whisper.cpp does not load a file, and never will."""
_LATEST: Final = "yue"
"""The language that only models with a hundred of them know."""
_DECODER: Final = "av"
"""The package with which our server reads recordings; older installations lack it."""
_FIXED_FIELDS: Final = (FormPart("response_format", b"verbose_json"), FormPart("no_language_probabilities", b"true"))
"""Fields of every request, whatever its client asks for; the probabilities would cost another pass over the recording."""
_WARM_UP_FIELDS: Final = (FormPart("audio_ctx", b"64"), FormPart("temperature_inc", b"0"), FormPart("max_tokens", b"1"))


class WhisperCppBackend(SingleSlotBackend):
    """One ggml model behind one whisper-server."""

    descriptor: ClassVar[RecipeDescriptor] = DESCRIPTOR
    hidden: ClassVar[tuple[str, ...]] = ("LLAMA_", "WHISPER_")
    answers_while_busy: ClassVar[bool] = False
    busy_status: ClassVar[int] = 400
    program_setting: ClassVar[str] = "whisper_server"
    arguments_option: ClassVar[str] = "whispercpp_args"
    key_variable: ClassVar[str] = flags.KEY
    flag_table: ClassVar[FlagTable] = flags.FLAGS
    program = "whisper-server"
    _header: ggml.GgmlHeader | None = None
    """That of the model's file, once it was read."""

    def file_problem(self, output: str) -> str:
        """See :meth:`Backend.file_problem`."""
        return (
            "whisper-server says that the model's file is broken: download or convert it again"
            if _BROKEN_FILE.search(output)
            else ""
        )

    def check(self) -> None:
        """See :meth:`Backend.check`."""
        super().check()
        if self._program.requires and not self._has_package(_DECODER):
            what = f"the whispercpp backend {self._program.name!r} lacks the package {_DECODER}, which reads recordings"
            cure = self._installation_hint()
            raise Failure(Code.BACKEND_NOT_INSTALLED, f"{what}: {cure}", model=self.spec.name).raised()

    def _read_arguments(self) -> None:
        self.flag_table.parse(self._words)

    def examine(self) -> ModelFacts:
        """See :meth:`Backend.examine`."""
        path = Path(self.spec.path)
        self._header = ggml.check(path)
        return ModelFacts(path.stat().st_size)

    def memory(self) -> MemoryEstimate:
        """See :meth:`Backend.memory`."""
        if self._header is None:
            return super().memory()
        chosen = self.flag_table.last_of(self._words, "--flash-attn", "--no-flash-attn")
        flash = chosen == "--flash-attn" if chosen else self._is_own_server
        return whisper_memory(self._header, self.model_facts.size, flash=flash)

    def command(self, port: int) -> list[str]:
        """See :meth:`Backend.command`. The user's arguments come last, so they take precedence."""
        words = self._start_command()
        words += ["-m", self.spec.path, "--host", "127.0.0.1", "--port", str(port)]
        threads = int(self.spec.options.get("threads", self.settings.threads))
        if threads:
            words += ["-t", str(threads)]
        # Without a language OpenAI detects it; the engine would assume English.
        words += ["-l", AUTO, "--print-progress"]
        return words + self._words

    def environment(self, inherited: dict[str, str]) -> dict[str, str]:
        """See :meth:`Backend.environment`."""
        kept = super().environment(inherited)
        kept["GGML_NO_BACKTRACE"] = "1"
        return kept

    def parse(self, line: bytes) -> tuple[str, str]:
        """See :meth:`Backend.parse`. It logs every step of every recording; errors begin with a word that says so."""
        text = line.decode("utf-8", "replace")
        return "warning" if "error" in text.lower() or "failed" in text.lower() else "debug", text

    def progress(self, line: bytes) -> EngineProgress | None:
        """See :meth:`Backend.progress`."""
        found = _PROGRESS.search(line)
        return EngineProgress(int(found[1]), 100, "%") if found else None

    def warm_up(self) -> EngineRequest:
        """A moment of silence in a narrow window: an engine built for another processor dies here, not in a request."""
        return self._inference(form_data.encode([*_WARM_UP_FIELDS, FormPart("file", _silence(0.2), "silence.wav")]))

    def about(self) -> EngineRequest:
        """See :meth:`Backend.about`."""
        return self.health()

    def facts(self, _answer: bytes) -> EngineFacts:
        """See :meth:`Backend.facts`. The engine reports nothing about itself."""
        installation = self._installation()
        version = installation.record.version if installation else ""
        if self._program.requires and not version:
            version = package_version(flags.PACKAGE)
        return EngineFacts(self.slots, 0, version)

    def busy(self) -> EngineRequest:
        """See :meth:`Backend.busy`. The engine refuses it when its turn comes."""
        return self._inference(form_data.encode([FormPart("ready", b"")]))

    def processing(self, _answer: bytes) -> int:
        """See :meth:`Backend.processing`.

        Whatever the answer to :meth:`busy` says, it comes when the engine is idle.
        """
        return 0

    def request(self, endpoint: str, query: str, body: bytes, stream: bool) -> EngineRequest:
        """See :meth:`Backend.request`."""
        self.refuse_unserved(endpoint)
        if query:
            raise self.unserved(endpoint)
        more = [FormPart("translate", b"true")] if endpoint == TRANSLATIONS else []
        # The original sends whole answers: all events then come at the end.
        more += [FormPart("stream", b"true")] if stream and self._is_own_server else []
        try:
            fields = form_data.parse(form_data.boundary_from_body(body), body)
            sampling_options = flags.parse_form_fields({part.name: part.text() for part in fields if not part.filename})
            self._check_language(str(sampling_options.get(flags.LANGUAGE, AUTO)))
            if not self._is_own_server:
                check_measured(fields, self.program)
                if sampling_options.get("duration_ms"):
                    raise invalid(
                        f"`duration`: {self.program} would continue beyond the end of a recording: cut it", "duration"
                    )
            inference = self._inference(form_data.prepend_parts(body, [*_FIXED_FIELDS, *more]))
        except FlagError as problem:
            # The original answers 500 to anything that is not a number.
            raise invalid(str(problem), str(problem).partition(" ")[0]) from None
        except ValueError as problem:
            raise invalid(f"the request is not a form: {problem}") from None
        if not stream:
            return inference
        if self._is_own_server:
            return inference._replace(streamed=True, translate=SegmentStreamTranslator().feed)
        return inference._replace(translate=streamed(convert_transcription))

    def _check_language(self, code: str) -> None:
        """Raise ``invalid_request`` for a language that this model does not know: the engine would take another one."""
        known = self._languages
        if code == AUTO or (known == 1 and code == "en") or known >= len(LANGUAGES) or (known > 1 and code != _LATEST):
            return
        what = "it only knows English" if known == 1 else "it is older than the support for that language"
        raise invalid(f"`language`: {self.spec.name} does not know {LANGUAGES[code]}; {what}", "language")

    @cached_property
    def _languages(self) -> int:
        try:
            return ggml.languages(Path(self.spec.path))
        except (OSError, BrokenError):
            return len(LANGUAGES)

    def _inference(self, body: bytes) -> EngineRequest:
        kind = f"{form_data.MEDIA_TYPE}; boundary={form_data.boundary_from_body(body)}"
        return EngineRequest("POST", "/inference", body, content_type=kind, translate=convert_transcription)


def _silence(seconds: float) -> bytes:
    file = io.BytesIO()
    with wave.open(file, "wb") as sound:
        sound.setnchannels(1)
        sound.setsampwidth(2)
        sound.setframerate(16_000)
        sound.writeframes(bytes(2 * int(16_000 * seconds)))
    return file.getvalue()


RECIPE: Final = Recipe(DESCRIPTOR, WhisperCppBackend, flags.FLAGS, None, identify, SUFFIXES)
