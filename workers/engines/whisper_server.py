"""Our ``whisper-server``: whisper.cpp's HTTP server in Python, over the pywhispercpp wheel, with its command line.

``GET /health`` is 503 while the model loads, then 200.  ``POST /inference`` takes a form with ``file`` in it and hears
one recording at a time, in the order of arrival; it stops within a window of 30 seconds when its client hangs up.
Exit codes: 0 after SIGTERM (which ends it by itself while it loads), 1 if the model cannot be loaded, 2 for a command
line that makes no sense.  It ends with the process that started it.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import msgspec

from protocol import forms, transcripts
from protocol.transcripts import Transcript
from workers import ggml
from workers.broken import BrokenError
from workers.engines.door import JSON, Door, Visit, unknown
from workers.engines.ending import leave, starter, wait_for_the_end
from workers.engines.flags import FlagError
from workers.engines.hearing import Hearing, HearingError
from workers.engines.refusal import RefusedError
from workers.engines.sound import SoundError, samples
from workers.engines.whisper_flags import KEY, read, version, wishes


class Server(Door):
    """The listener, and the model once it is loaded."""

    def __init__(self, address: tuple[str, int], alias: str, key: str) -> None:
        """Listen; answer 503 until there is a model."""
        self.hearing: Hearing | None = None
        super().__init__(address, Handler, alias, key)
        self.ready = False

    def begin(self, hearing: Hearing) -> None:
        """Hear with this model from now on."""
        self.hearing = hearing
        self.ready = True


class Handler(Visit):
    """One connection."""

    server: Server
    server_version = "whisper-server"
    largest = 1024 * 1024 * 1024

    def serve(self, path: str, body: bytes) -> None:
        """Answer ``/inference`` when it is its turn; also what is wrong with it, as whisper-server does."""
        if path != "/inference":
            raise unknown()
        hearing = self.server.hearing
        if hearing is None:
            raise RefusedError("Loading model", 503, "unavailable_error")
        with self.server.turn(self.gone):
            fields, recording = self._form(body)
            heard, form = self._hear(hearing, fields, recording)
        self.answer(*_written(heard, form))

    def _hear(self, hearing: Hearing, fields: dict[str, str], recording: bytes) -> tuple[Transcript, str]:
        try:
            asked = wishes(fields)
            form = str(asked.pop("<form>", "json"))
            heard = hearing.hear(samples(recording, self.gone), asked, self.gone)
        except (FlagError, SoundError) as problem:
            raise RefusedError(str(problem)) from None
        except HearingError as problem:
            raise RefusedError(str(problem), 500, "server_error") from None
        if heard is None:
            raise ConnectionAbortedError
        return heard, form

    def _form(self, body: bytes) -> tuple[dict[str, str], bytes]:
        try:
            boundary = forms.boundary_in(self.headers.get("Content-Type", ""))
            parts = forms.read(boundary, body)
            fields = {part.name: part.text() for part in parts if part.name != "file"}
        except ValueError as problem:
            raise RefusedError(f"the body is no form that can be read: {problem}") from None
        recordings = [part.data for part in parts if part.name == "file"]
        if len(recordings) != 1:
            raise RefusedError("no 'file' field in the request" if not recordings else "more than one 'file'")
        return fields, recordings[0]


def _written(heard: Transcript, form: str) -> tuple[bytes, str]:
    """Return an answer in whisper-server's own forms; its long JSON has the words inside the segments."""
    if form in transcripts.WRITTEN:
        kind, write = transcripts.WRITTEN[form]
        return write(heard).encode(), kind
    if form == "verbose_json":
        return msgspec.json.encode(heard), JSON
    return msgspec.json.encode({"text": heard.text}), JSON


def main(words: list[str]) -> int:
    """Serve until told to end; return the exit code."""
    try:
        parent = starter()
        given: dict[str, Any] = dict(read(words))
    except (FlagError, ProcessLookupError) as problem:
        sys.stderr.write(f"whisper-server: {problem}\n")
        return 2 if isinstance(problem, FlagError) else 1
    if given.get("<version>"):
        sys.stdout.write(f"whisper-server over pywhispercpp {version()}\n")
        return 0
    path = str(given.pop("<model>", ""))
    if not path:
        sys.stderr.write("whisper-server: -m is missing\n")
        return 2
    address = (str(given.pop("<host>", "127.0.0.1")), int(given.pop("<port>", 8080)))
    try:
        server = Server(address, Path(path).stem, os.environ.pop(KEY, ""))
    except OSError as problem:
        sys.stderr.write(f"whisper-server: cannot listen: {problem.strerror}\n")
        return 1
    server.open()
    try:
        ggml.check(Path(path))  # the library would read on behind the end
        server.begin(Hearing(path, given))
    except (ImportError, OSError, BrokenError, HearingError) as problem:
        sys.stderr.write(f"whisper-server: cannot load the model: {problem}\n")
        return 1
    wait_for_the_end(parent)
    return 0


if __name__ == "__main__":
    leave(main(sys.argv[1:]))
