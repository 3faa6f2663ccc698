"""whisper.cpp from the pywhispercpp wheel: loads a model and transcribes recordings.

Only the extension module is loaded, because the package around it also loads a downloader.
"""

from __future__ import annotations

import importlib
import os
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from protocol.wire.transcripts import AUTO, LANGUAGES, Transcript, TranscriptSegment, TranscriptWord
from workers.engine_servers.whisper_server.audio import SAMPLE_RATE_HZ, Samples
from workers.engine_servers.whisper_server.no_speech import no_speech_reader

LIBRARY: Final = "_pywhispercpp"
_ERROR: Final = 4
"""ggml's log level for errors."""
_TICK: Final = 0.01
"""Unit of whisper.cpp's times, in seconds."""


class TranscriptionError(Exception):
    """The library failed; the text is for the caller."""


class Transcriber:
    """One loaded model. It transcribes one recording at a time."""

    def __init__(self, path: str, given: Mapping[str, Any]) -> None:
        """Load ``path``.

        ``given``: the command line. Raises ImportError, or :class:`TranscriptionError` if loading fails.
        """
        self._library = importlib.import_module(LIBRARY)
        self._given = dict(given)
        wanted = self._library.whisper_context_default_params()
        wanted.use_gpu = bool(given.get("<use_gpu>", True))
        wanted.flash_attn = bool(given.get("<flash_attn>", wanted.flash_attn))
        self._context = self._loaded(path, wanted)
        self._no_speech_prob = no_speech_reader(self._library, self._context)
        self._knows_all_languages = bool(self._library.whisper_is_multilingual(self._context))

    def _loaded(self, path: str, wanted: Any) -> Any:
        wrong: list[str] = []

        def reported(level: int, text: str) -> None:
            if level == _ERROR:
                wrong.append(text.strip())
                sys.stderr.write(text)

        # The library returns a context even if there is none, and only says so here.
        self._library.whisper_log_set(reported)
        try:
            context = self._library.whisper_init_from_file_with_params(path, wanted)
        finally:
            self._library.whisper_log_set(None)
        if wrong:
            raise TranscriptionError(wrong[-1])
        return context

    def transcribe(
        self,
        samples: Samples,
        options: Mapping[str, Any],
        client_disconnected: Callable[[], bool],
        on_segment: Callable[[TranscriptSegment], None] | None = None,
    ) -> Transcript | None:
        """Return the transcript; None if the client disconnected meanwhile. Raises :class:`TranscriptionError`.

        ``options``: the request's, by the targets of ``workers/backends/whispercpp/flags.py``. ``on_segment`` is called with each segment as soon
        as it is known. If it raises OSError, the client has disconnected.
        """
        library = self._library
        parameters, task = self._parameters({**self._given, **options})
        length_ms = len(samples) * 1000 // SAMPLE_RATE_HZ
        if length_ms <= parameters.offset_ms:
            # Without samples, the library would transcribe the previous recording again.
            return Transcript(task=task)
        # The library would continue beyond the end of a recording.
        parameters.duration_ms = min(parameters.duration_ms, length_ms - parameters.offset_ms)
        temperature = round(float(parameters.temperature), 4)
        gone = threading.Event()

        def abort() -> bool:
            return gone.is_set() or client_disconnected()

        def new_segments(_context: object, count: int, *_: object) -> None:
            # An exception that passes through the library's C++ code ends the process.
            try:
                total = library.whisper_full_n_segments(self._context)
                if on_segment is not None:
                    for index in range(total - count, total):
                        on_segment(self._segment(index, temperature))
            except OSError:
                gone.set()

        library.assign_abort_callback(parameters, abort)
        library.assign_new_segment_callback(parameters, new_segments)
        if self._given.get("<print_progress>"):
            parameters.print_progress = True  # without it the binding never calls the callback
            library.assign_progress_callback(parameters, _print_progress)
        failed = library.whisper_full(self._context, parameters, samples, len(samples))
        if abort():
            return None
        if failed:
            raise TranscriptionError("whisper.cpp failed on this recording")
        segments = [
            self._segment(index, temperature) for index in range(library.whisper_full_n_segments(self._context))
        ]
        language = library.whisper_lang_str(library.whisper_full_lang_id(self._context)) or ""
        return Transcript(
            task=task,
            language=LANGUAGES.get(language, language),
            duration=round(len(samples) / SAMPLE_RATE_HZ, 3),
            text="".join(segment.text for segment in segments),
            segments=segments,
        )

    def _parameters(self, wanted: Mapping[str, Any]) -> tuple[Any, str]:
        library = self._library
        strategies = library.whisper_sampling_strategy
        beams = int(wanted.get("<beam_size>", -1))
        parameters = library.whisper_full_default_params(
            strategies.WHISPER_SAMPLING_BEAM_SEARCH if beams > 1 else strategies.WHISPER_SAMPLING_GREEDY
        )
        parameters.print_progress = parameters.print_timestamps = False
        parameters.token_timestamps = not wanted.get("no_timestamps", False)
        parameters.n_threads = max(1, len(os.sched_getaffinity(0)))
        for name, value in wanted.items():
            if name == "n_max_text_ctx" and value < 0:
                continue
            if not name.startswith("<"):
                setattr(parameters, name, value)
        if beams > 1:
            parameters.beam_search = {"beam_size": beams, "patience": -1.0}
        if wanted.get("<best_of>", -1) > 0:
            parameters.greedy = {"best_of": int(wanted["<best_of>"])}
        if wanted.get("<no_fallback>"):
            parameters.temperature_inc = 0.0
        language = str(wanted.get("<language>", "en"))
        if not self._knows_all_languages:
            language, parameters.translate = "en", False
        elif wanted.get("<detect_language>"):
            language = AUTO
        parameters.language = language
        return parameters, "translate" if parameters.translate else "transcribe"

    def _segment(self, index: int, temperature: float) -> TranscriptSegment:
        library, context = self._library, self._context
        text = library.whisper_full_get_segment_text(context, index).decode("utf-8", "replace")
        count = library.whisper_full_n_tokens(context, index)
        all_tokens = [library.whisper_full_get_token_data(context, index, place) for place in range(count)]
        tokens = [token for token in all_tokens if token.id < library.whisper_token_eot(context)]
        return TranscriptSegment(
            id=index,
            start=round(library.whisper_full_get_segment_t0(context, index) * _TICK, 2),
            end=round(library.whisper_full_get_segment_t1(context, index) * _TICK, 2),
            text=text,
            tokens=[token.id for token in tokens],
            temperature=temperature,
            no_speech_prob=self._no_speech_prob(index),
            avg_logprob=round(sum(token.plog for token in tokens) / len(tokens), 4) if tokens else None,
            words=list(self._pieces(tokens)),
        )

    def _pieces(self, tokens: list[Any]) -> Iterator[TranscriptWord]:
        """Yield readable text: a token may be half a character."""
        begun, start = b"", 0
        for token in tokens:
            start = start if begun else token.t0
            begun += self._library.whisper_token_to_bytes(self._context, token.id)
            try:
                text = begun.decode()
            except UnicodeDecodeError:
                continue
            begun = b""
            yield TranscriptWord(text, round(max(0, start) * _TICK, 2), round(max(0, token.t1) * _TICK, 2))


def _print_progress(percent: int, *_: object) -> None:
    """Print what the original prints with ``--print-progress``."""
    sys.stderr.write(f"progress = {percent:3}%\n")
    sys.stderr.flush()
