"""Our ``whisper-server``: whisper.cpp's HTTP server in Python, over the pywhispercpp wheel, with its command line.

``GET /health`` is 503 while the model loads, then 200. ``POST /inference`` takes a form with ``file`` in it and
transcribes one recording at a time, in the order of arrival. When the client hangs up, it stops at the latest at the
end of a window of 30 seconds. Unlike the original, it takes ``stream=true``: each segment is sent as soon as it is
known (``data: {"segment": …}``), then ``data: [DONE]``. Exit codes: 0 after SIGTERM (which ends it by itself while it
loads), 1 if the model cannot be loaded, 2 for an invalid command line. It ends with the process that started it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from protocol.runtime.process_exit import exit_immediately
from protocol.wire import form_data, transcripts
from protocol.wire.transcripts import Transcript, TranscriptSegment
from workers.backends.flag_table import FlagError
from workers.backends.package_version import package_version
from workers.backends.whispercpp.flags import FLAGS, KEY, PACKAGE, parse_form_fields
from workers.engine_servers.http_server import (
    JSON_CONTENT_TYPE,
    EngineHttpError,
    EngineHttpHandler,
    EngineHttpServer,
    not_found_error,
)
from workers.engine_servers.shutdown_wait import open_parent_pidfd, wait_for_shutdown
from workers.engine_servers.whisper_server.audio import AudioError, Samples, decode_audio
from workers.engine_servers.whisper_server.transcriber import Transcriber, TranscriptionError
from workers.files import ggml
from workers.files.errors import BrokenError


class WhisperHttpServer(EngineHttpServer):
    """The listener, and the model once it is loaded."""

    def __init__(self, address: tuple[str, int], alias: str, key: str) -> None:
        """Listen; answer 503 until there is a model."""
        self.transcriber: Transcriber | None = None
        super().__init__(address, WhisperHttpHandler, alias, key)
        self.ready = False

    def begin(self, transcriber: Transcriber) -> None:
        """Transcribe with this model from now on."""
        self.transcriber = transcriber
        self.ready = True


class WhisperHttpHandler(EngineHttpHandler):
    """One connection."""

    server: WhisperHttpServer
    server_version = "whisper-server"
    largest = 1024 * 1024 * 1024

    def serve(self, path: str, body: bytes) -> None:
        """Answer ``/inference`` in turn; errors are answered as whisper-server does."""
        if path != "/inference":
            raise not_found_error()
        transcriber = self.server.transcriber
        if transcriber is None:
            raise EngineHttpError("Loading model", 503, "unavailable_error")
        with self.server.engine_lock(self.client_disconnected):
            fields, recording = self._form(body)
            try:
                options = parse_form_fields(fields)
                samples = decode_audio(recording, self.client_disconnected)
            except (FlagError, AudioError) as problem:
                raise EngineHttpError(str(problem)) from None
            form = str(options.pop("<form>", "json"))
            if options.pop("<stream>", False):
                self._stream(transcriber, samples, options)
                return
            transcript = self._transcribe(transcriber, samples, options)
        self.answer(*_format_transcript(transcript, form))

    def _stream(self, transcriber: Transcriber, samples: Samples, options: dict[str, Any]) -> None:
        """Send each segment as soon as it is known.

        An error becomes an event, because the status has already been sent.
        """
        self.begin_stream()
        try:
            self._transcribe(transcriber, samples, options, self._send_segment)
        except EngineHttpError as problem:
            self.send(b"data: " + msgspec.json.encode({"error": problem.body}) + b"\n\n")
        else:
            self.send(b"data: [DONE]\n\n")
        self.send(b"")

    def _send_segment(self, segment: TranscriptSegment) -> None:
        self.send(b"data: " + msgspec.json.encode({"segment": segment}) + b"\n\n")

    def _transcribe(
        self,
        transcriber: Transcriber,
        samples: Samples,
        options: dict[str, Any],
        on_segment: Callable[[TranscriptSegment], None] | None = None,
    ) -> Transcript:
        """Return the transcript; raises :class:`EngineHttpError`, or OSError if the client is gone."""
        try:
            transcript = transcriber.transcribe(samples, options, self.client_disconnected, on_segment)
        except TranscriptionError as problem:
            raise EngineHttpError(str(problem), 500, "server_error") from None
        if transcript is None:
            raise ConnectionAbortedError
        return transcript

    def _form(self, body: bytes) -> tuple[dict[str, str], bytes]:
        try:
            boundary = form_data.boundary_from_content_type(self.headers.get("Content-Type", ""))
            parts = form_data.parse(boundary, body)
            fields = {part.name: part.text() for part in parts if part.name != "file"}
        except ValueError as problem:
            raise EngineHttpError(f"the body is not a readable form: {problem}") from None
        recordings = [part.data for part in parts if part.name == "file"]
        if len(recordings) != 1:
            raise EngineHttpError("no 'file' field in the request" if not recordings else "more than one 'file'")
        return fields, recordings[0]


def _format_transcript(transcript: Transcript, form: str) -> tuple[bytes, str]:
    """Return an answer in whisper-server's own forms. Its long JSON has the words inside the segments."""
    if form in transcripts.TEXT_FORMATS:
        kind, write = transcripts.TEXT_FORMATS[form]
        return write(transcript).encode(), kind
    if form == "verbose_json":
        return msgspec.json.encode(transcript), JSON_CONTENT_TYPE
    return msgspec.json.encode({"text": transcript.text}), JSON_CONTENT_TYPE


def main(words: list[str]) -> int:
    """Serve until told to end; return the exit code."""
    try:
        parent = open_parent_pidfd()
        given: dict[str, Any] = dict(FLAGS.parse(words))
    except (FlagError, ProcessLookupError) as problem:
        sys.stderr.write(f"whisper-server: {problem}\n")
        return 2 if isinstance(problem, FlagError) else 1
    if given.get("<version>"):
        sys.stdout.write(f"whisper-server over pywhispercpp {package_version(PACKAGE)}\n")
        return 0
    path = str(given.pop("<model>", ""))
    if not path:
        sys.stderr.write("whisper-server: -m is missing\n")
        return 2
    address = (str(given.pop("<host>", "127.0.0.1")), int(given.pop("<port>", 8080)))
    try:
        server = WhisperHttpServer(address, Path(path).stem, os.environ.pop(KEY, ""))
    except OSError as problem:
        sys.stderr.write(f"whisper-server: cannot listen: {problem.strerror}\n")
        return 1
    server.open()
    try:
        ggml.check(Path(path))  # the library would read on beyond the end
        transcriber = Transcriber(path, given)
    except (ImportError, OSError, BrokenError, TranscriptionError) as problem:
        sys.stderr.write(f"whisper-server: cannot load the model: {problem}\n")
        return 1
    wait_for_shutdown(parent, lambda: server.begin(transcriber))
    return 0


if __name__ == "__main__":
    exit_immediately(main(sys.argv[1:]))
