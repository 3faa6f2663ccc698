"""Transcripts of recordings through the whole server: OpenAI's own client, all formats, all prefixes, and errors."""

from __future__ import annotations

from pathlib import Path

import pytest

from protocol.wire import form_data
from protocol.wire.form_data import FormPart
from tests.conftest import StartServer
from tests.support import processes
from tests.support.audio import wav
from tests.support.clients.deferred_packages import openai
from tests.support.clients.http_exchange import HttpExchange
from tests.support.models.tiny_models import CHAT_TEXT, tiny_models
from tests.support.server import LemonbusServer
from tests.support.waiting import wait_for

MODEL, SLOW = "extra.tiny-whisper", "extra.slow-whisper"
TRANSCRIPT = CHAT_TEXT.strip()
ROUTE = "audio/transcriptions"
SOUND = FormPart("file", wav(1.2), "a.wav")
LONG = FormPart("file", wav(60, rate=4_000, width=1), "long.wav")
"""Two windows."""
LONGEST = FormPart("file", wav(240, rate=4_000, width=1), "longest.wav")
"""Eight windows of half a second each for the slow model, so that it does not end before a test has seen what it waits for."""


def start(
    server: LemonbusServer, *parts: FormPart, model: str = MODEL, route: str = f"/v1/{ROUTE}", **headers: str
) -> HttpExchange:
    body = form_data.encode([FormPart("model", model.encode()), *parts])
    kind = {"Content-Type": f"multipart/form-data; boundary={form_data.boundary_from_body(body)}"}
    return server.client.start("POST", route, body, kind | headers)


def send(server: LemonbusServer, *parts: FormPart, model: str = MODEL, route: str = f"/v1/{ROUTE}") -> HttpExchange:
    return start(server, *parts, model=model, route=route).finish()


def client(server: LemonbusServer) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"http://127.0.0.1:{server.port}/v1", api_key="none", max_retries=0)


def test_load_and_health_and_unload(shared_server: LemonbusServer) -> None:
    answer = shared_server.client.post("/v1/load", {"model_name": MODEL})
    assert answer.status == 200, answer
    assert answer.json() == {
        "status": "success",
        "message": f"Loaded model: {MODEL}",
        "model_name": MODEL,
        "model": MODEL,
        "checkpoint": "tiny-whisper.bin",
        "recipe": "whispercpp",
    }
    [entry] = [each for each in shared_server.health()["all_models_loaded"] if each["model_name"] == MODEL]
    assert (entry["type"], entry["device"], entry["recipe"]) == ("audio", "cpu", "whispercpp")
    assert entry["recipe_options"]["whispercpp_backend"] == "cpu"
    pid = shared_server.engine_pid(MODEL)
    assert shared_server.client.post("/v1/unload", {"model_name": MODEL}).status == 200
    assert processes.look(pid) is None


def test_the_openai_package(shared_server: LemonbusServer) -> None:
    recording = (SOUND.filename, SOUND.data)
    with client(shared_server) as openai_client:
        ask = openai_client.audio.transcriptions.create
        assert ask(model=MODEL, file=recording).text == TRANSCRIPT
        assert ask(model=MODEL, file=recording, response_format="text") == f"{TRANSCRIPT}\n"
        subtitles = ask(model=MODEL, file=recording, response_format="srt")
        assert subtitles == f"1\n00:00:00,000 --> 00:00:01,000\n{TRANSCRIPT}\n\n"
        subtitles = ask(model=MODEL, file=recording, response_format="vtt")
        assert subtitles == f"WEBVTT\n\n00:00:00.000 --> 00:00:01.000\n{TRANSCRIPT}\n\n"
        long = ask(
            model=MODEL,
            file=recording,
            response_format="verbose_json",
            timestamp_granularities=["word", "segment"],
            language="en",
            temperature=0.1,
        )
    assert (long.text, long.language, long.duration) == (TRANSCRIPT, "english", 1.2)
    assert long.words is not None
    assert " ".join(word.word for word in long.words) == TRANSCRIPT.replace(" .", ".")
    assert long.segments is not None
    assert (long.segments[0].start, long.segments[0].end) == (0.0, 1.0)
    stats = shared_server.client.get(f"/v1/stats?model={MODEL}").json()
    assert stats["output_tokens"] == len(CHAT_TEXT.split())
    assert stats["model"] == MODEL


def test_a_stream_by_the_openai_package(shared_server: LemonbusServer) -> None:
    with client(shared_server) as openai_client:
        events = list(
            openai_client.audio.transcriptions.create(model=MODEL, file=(LONG.filename, LONG.data), stream=True)
        )
    *deltas, done = events
    assert all(isinstance(event, openai.types.audio.TranscriptionTextDeltaEvent) for event in deltas)
    assert isinstance(done, openai.types.audio.TranscriptionTextDoneEvent)
    assert "".join(event.delta for event in deltas) == done.text
    assert [event.delta.strip() for event in deltas] == [TRANSCRIPT] * 2
    stats = shared_server.client.get(f"/v1/stats?model={MODEL}").json()
    assert stats["output_tokens"] == 2 * len(CHAT_TEXT.split())


@pytest.mark.parametrize(
    ("form", "kind"),
    [
        ("json", "application/json"),
        ("text", "text/plain; charset=utf-8"),
        ("srt", "text/plain; charset=utf-8"),
        ("vtt", "text/plain; charset=utf-8"),
        ("verbose_json", "application/json"),
    ],
)
def test_media_types(shared_server: LemonbusServer, form: str, kind: str) -> None:
    answer = send(shared_server, FormPart("response_format", form.encode()), SOUND)
    assert (answer.status, answer.headers["content-type"]) == (200, kind)


@pytest.mark.parametrize("prefix", ["/v1", "/api/v1", "/v0", "/api/v0"])
def test_all_prefixes(shared_server: LemonbusServer, prefix: str) -> None:
    assert send(shared_server, SOUND, route=f"{prefix}/{ROUTE}").json()["text"] == TRANSCRIPT


def test_translations_any_wav_and_the_model_used_last(shared_server: LemonbusServer) -> None:
    assert send(shared_server, SOUND, route="/v1/audio/translations").json()["text"] == TRANSCRIPT
    other = FormPart("file", wav(1.2, rate=44_100, channels=2, width=3))
    assert send(shared_server, other, model="").json()["text"] == TRANSCRIPT
    assert shared_server.client.get(f"/v1/{ROUTE}").headers["allow"] == "POST, OPTIONS"


@pytest.mark.parametrize(
    ("parts", "model", "status", "param"),
    [
        ([], MODEL, 400, "file"),
        ([SOUND, FormPart("stream", b"perhaps")], MODEL, 400, "stream"),
        ([FormPart("file", b"ID3", "a.mp3"), FormPart("stream", b"true")], MODEL, 400, "file"),
        ([SOUND], "extra.tiny-chat", 400, "model"),
        ([SOUND], "no-such-model", 404, "model"),
        ([FormPart("file", b"OggS", "a.ogg")], MODEL, 400, None),
        ([FormPart("file", b"#EXTM3U\n", "a.mp3")], MODEL, 400, "file"),
        ([SOUND, FormPart("best_of", b"many")], MODEL, 400, "best_of"),
        ([SOUND, FormPart("language", b"German")], MODEL, 400, "language"),
    ],
)
def test_what_cannot_be(
    shared_server: LemonbusServer, parts: list[FormPart], model: str, status: int, param: str | None
) -> None:
    answer = send(shared_server, *parts, model=model)
    assert (answer.status, answer.error["param"]) == (status, param), answer
    assert "Traceback" not in answer.error["message"]


def test_bodies_that_are_not_forms(shared_server: LemonbusServer) -> None:
    route = f"/v1/{ROUTE}"
    assert shared_server.client.post(route, {"model": MODEL}).status == 400
    for kind, body in (
        ("multipart/form-data", b"x"),
        ("multipart/form-data; boundary=a", b"--a\r\nContent-Disposition: form-data; name=file\r\n\r\nRI"),
        ("multipart/form-data; boundary=a", b"--b--\r\n"),
        ("multipart/form-data; boundary=a", b""),
    ):
        answer = shared_server.client.post(route, body, Content_Type=kind)
        assert (answer.status, answer.error["code"]) == (400, "invalid_request"), (kind, answer)
    chat = {"model": MODEL, "messages": [{"role": "user", "content": "hi"}]}
    assert shared_server.client.post("/v1/chat/completions", chat).status == 400


@pytest.fixture(scope="module")
def faulty(start_module_server: StartServer) -> LemonbusServer:
    return start_module_server("tiny-whisper", "slow-whisper", "tiny-chat", body_limit=1_000_000, spool_over=10_000)


def test_bodies_too_large_and_bodies_in_the_spool(faulty: LemonbusServer) -> None:
    assert send(faulty, FormPart("file", bytes(1_000_000), "a.wav")).status == 413
    assert send(faulty, SOUND).json()["text"] == TRANSCRIPT
    assert not list((faulty.runtime / "spool").iterdir())


def test_an_engine_that_dies_before_it_answers_is_asked_again(faulty: LemonbusServer) -> None:
    assert send(faulty, SOUND).status == 200
    pid = faulty.engine_pid(MODEL)
    with processes.stopped(pid):
        answer = start(faulty, SOUND)
        wait_for(lambda: faulty.state()["granted"] == 1, "it is at the engine")
        processes.kill(pid)
    assert answer.finish().json()["text"] == TRANSCRIPT
    assert faulty.engine_pid(MODEL) != pid


def hang_up_before_another(server: LemonbusServer, sound: FormPart, model: str) -> HttpExchange:
    """Make a client hang up while its recording is at the engine and another request waits; return the other one."""
    exchange = start(server, sound, model=model)
    wait_for(lambda: server.state()["granted"] == 1, "it runs")
    second = start(server, SOUND, model=model)
    wait_for(lambda: server.state()["queued"] == 1, "the other one waits")
    exchange.hang_up()
    return second


def test_a_client_that_hangs_up_stops_it_and_others_wait_their_turn(faulty: LemonbusServer) -> None:
    # It stops at the end of a window, or is started again if a window takes more than a second.
    assert faulty.client.post("/v1/load", {"model_name": SLOW}).status == 200
    assert hang_up_before_another(faulty, LONGEST, SLOW).finish().status == 200


def test_an_engine_that_keeps_working_after_its_client_left_is_started_again(faulty: LemonbusServer) -> None:
    assert send(faulty, SOUND).status == 200
    pid = faulty.engine_pid(MODEL)
    with processes.stopped(pid):  # it notices nothing
        assert hang_up_before_another(faulty, SOUND, MODEL).finish().json()["text"] == TRANSCRIPT
    assert faulty.engine_pid(MODEL) != pid


@pytest.mark.parametrize(
    ("cut", "why"), [(1_000_000, "it is truncated: "), (20, "it is truncated"), (3_000, "it is truncated: ")]
)
def test_incomplete_files(faulty: LemonbusServer, cut: int, why: str) -> None:
    whole = (tiny_models() / "models" / "tiny-whisper.bin").read_bytes()
    name = f"cut-{cut}"
    (faulty.models / f"{name}.bin").write_bytes(whole[:cut])
    (faulty.models / "weights.bin").write_bytes(b"PK\3\4")
    answer = faulty.client.post("/v1/load", {"model_name": f"extra.{name}"})
    assert (answer.status, answer.error["code"]) == (500, "model_unusable")
    assert why in answer.error["message"]
    assert str(faulty.models) not in answer.error["message"]
    shown = {entry["id"] for entry in faulty.client.get("/v1/models").json()["data"]}
    assert f"extra.{name}" in shown
    assert "extra.weights" not in shown


def test_arguments_are_checked_before_any_model_is_stopped(faulty: LemonbusServer, tmp_path: Path) -> None:
    send(faulty, SOUND)
    pid = faulty.engine_pid(MODEL)
    for args in ("--no-such-flag", "--port 1", "-bs many"):
        answer = faulty.client.post("/v1/load", {"model_name": MODEL, "whispercpp_args": args})
        assert (answer.status, answer.error["param"]) == (400, "whispercpp_args")
    answer = faulty.client.post("/v1/load", {"model_name": MODEL, "whispercpp_backend": "vulkan"})
    assert (answer.status, answer.error["param"]) == (501, "whispercpp_backend")
    assert "its backend whispercpp:vulkan cannot be used on this machine" in answer.error["message"]
    assert answer.error["message"].endswith("Installed: cpu; load the model with `whispercpp_backend`")
    assert faulty.engine_pid(MODEL) == pid
    answer = faulty.client.post("/v1/load", {"model_name": MODEL, "whispercpp_args": "--convert"})
    assert answer.status == 200
    assert faulty.engine(MODEL).words[-1] == "--convert"
