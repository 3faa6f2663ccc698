"""Speech through the whole server with a tiny model: OpenAI's own client, all forms, events, and what ends an answer."""

from __future__ import annotations

import base64
import io
import re
from typing import Any

import av
import numpy as np
import pytest

from protocol.wire.speech import MEDIA_TYPES, SAMPLE_RATE
from tests.conftest import StartServer
from tests.support import processes
from tests.support.clients.http_client import engine_client
from tests.support.clients.http_exchange import HttpExchange
from tests.support.clients.openai_client import openai_client
from tests.support.models.kokoro_models import HERTZ, SAMPLES_PER_PHONEME, WORDS
from tests.support.server import LemonbusServer
from tests.support.waiting import wait_for

MODEL, PACED, SLOW = "extra.tiny-kokoro", "extra.paced-kokoro", "extra.slow-kokoro"
TEXT = "Hello world. Hello again!"
PHONEMES = len(" ".join([WORDS["hello"], WORDS["world"] + ".", WORDS["hello"], WORDS["again"] + "!"]))
SECONDS = PHONEMES * SAMPLES_PER_PHONEME / SAMPLE_RATE
LONG = "Hello. " + "one two " * 200
"""For the slow model, a short piece and then long ones, each of which takes it many seconds."""
MUCH = "hello " * 300
"""17 MB of PCM at speed 0.25, twice as much as all buffers on the way keep.

It is for the paced model: the tiny one makes all of it before a gateway that stands still for a moment says that it has enough.
"""
MUCH_SECONDS = 300 * len(WORDS["hello"] + " ") * SAMPLES_PER_PHONEME / SAMPLE_RATE / 0.25
ROUTE = "/v1/audio/speech"
MANY_DEATHS = 10_000


@pytest.fixture(scope="module")
def server(start_module_server: StartServer) -> LemonbusServer:
    return start_module_server("tiny-chat", "tiny-kokoro", "paced-kokoro", "slow-kokoro", breaker_deaths=MANY_DEATHS)


def start(server: LemonbusServer, text: str = TEXT, model: str = MODEL, **fields: Any) -> HttpExchange:
    return server.client.start("POST", ROUTE, {"model": model, "input": text, **fields})


def ask(server: LemonbusServer, text: str = TEXT, model: str = MODEL, **fields: Any) -> HttpExchange:
    return start(server, text, model, **fields).finish()


def samples_of(sound: bytes) -> Any:
    with av.open(io.BytesIO(sound)) as container:
        resampler = av.AudioResampler("flt", "mono", SAMPLE_RATE)
        frames = [part for frame in container.decode(audio=0) for part in resampler.resample(frame)]
        return np.concatenate([frame.to_ndarray().ravel() for frame in [*frames, *resampler.resample(None)]])


def pitch_of(samples: Any) -> float:
    """Return the frequency of a tone."""
    middle = samples[len(samples) // 4 : len(samples) * 3 // 4]
    crossings = np.count_nonzero(np.diff(np.signbit(middle)))
    return float(crossings / 2 * SAMPLE_RATE / len(middle))


@pytest.mark.parametrize("form", sorted(MEDIA_TYPES))
def test_each_form_is_what_it_says(server: LemonbusServer, form: str) -> None:
    answer = ask(server, response_format=form)
    assert (answer.status, answer.complete, answer.headers["content-type"]) == (200, True, MEDIA_TYPES[form]), answer
    samples = np.frombuffer(answer.body, "<i2") / 32_768 if form == "pcm" else samples_of(answer.body)
    assert len(samples) / SAMPLE_RATE == pytest.approx(SECONDS, abs=0.15)
    assert pitch_of(samples) == pytest.approx(HERTZ["af_heart"], rel=0.02)


def test_mp3_is_the_default_form(server: LemonbusServer) -> None:
    assert ask(server).headers["content-type"] == "audio/mpeg"


@pytest.mark.parametrize("prefix", ["/api/v1", "/v0", "/api/v0"])
def test_every_prefix_serves_it(server: LemonbusServer, prefix: str) -> None:
    answer = server.client.post(f"{prefix}/audio/speech", {"model": MODEL, "input": TEXT, "response_format": "pcm"})
    assert (answer.status, answer.complete) == (200, True)


@pytest.mark.parametrize(
    ("voice", "hertz"),
    [
        ("am_onyx", 660),
        ("onyx", 660),
        ("ONYX", 660),
        ({"id": "am_onyx"}, 660),
        ("af_heart+am_onyx", 550),
        ("af_heart(3)+am_onyx(1)", 495),
    ],
    ids=str,
)
def test_a_voice_is_one_of_the_model_one_of_openais_or_a_mixture(
    server: LemonbusServer, voice: object, hertz: float
) -> None:
    answer = ask(server, response_format="pcm", voice=voice)
    assert pitch_of(np.frombuffer(answer.body, "<i2")) == pytest.approx(hertz, rel=0.02)


def test_every_voice_of_openai_means_one_of_the_model(server: LemonbusServer) -> None:
    for voice in ("alloy", "ash", "ballad", "coral", "echo", "fable", "nova", "sage", "shimmer", "verse"):
        assert ask(server, response_format="pcm", voice=voice).status == 200


@pytest.mark.parametrize("speed", [0.25, 0.5, 2, 4])
def test_speed_divides_the_length(server: LemonbusServer, speed: float) -> None:
    answer = ask(server, response_format="pcm", speed=speed)
    assert len(answer.body) / 2 / SAMPLE_RATE == pytest.approx(SECONDS / speed, abs=0.1)


def test_events_have_the_same_sound_and_the_counts(server: LemonbusServer) -> None:
    plain = ask(server, response_format="pcm")
    answer = ask(server, response_format="pcm", stream_format="sse")
    assert answer.headers["content-type"].startswith("text/event-stream")
    *deltas, done = [event.json() for event in answer.messages]
    assert {each["type"] for each in deltas} == {"speech.audio.delta"}
    assert b"".join(base64.b64decode(each["audio"]) for each in deltas) == plain.body
    frames = PHONEMES * SAMPLES_PER_PHONEME // 600
    usage = {"input_tokens": PHONEMES, "output_tokens": frames, "total_tokens": PHONEMES + frames}
    assert done == {"type": "speech.audio.done", "usage": usage}
    stats = server.client.get("/v1/stats").json()
    assert (stats["model"], stats["input_tokens"], stats["output_tokens"]) == (MODEL, PHONEMES, frames)


def test_instructions_have_no_effect_which_a_header_says(server: LemonbusServer) -> None:
    assert "warning" not in ask(server).headers
    assert "`instructions` has no effect" in ask(server, instructions="whisper").headers["warning"]


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"input": ""}, "input"),
        ({"input": " \n"}, "input"),
        ({"input": "a" * 16_385}, "input"),
        ({"input": 7}, "input"),
        ({"voice": "bob"}, "voice"),
        ({"voice": "af_heart+bob"}, "voice"),
        ({"voice": "af_heart(0)"}, "voice"),
        ({"voice": "a/../b"}, "voice"),
        ({"voice": "+".join(["af_heart"] * 9)}, "voice"),
        ({"speed": 0.2}, "speed"),
        ({"speed": 4.1}, "speed"),
        ({"response_format": "ogg"}, "response_format"),
        ({"stream_format": "json"}, "stream_format"),
    ],
    ids=str,
)
def test_a_wrong_field_is_named(server: LemonbusServer, fields: dict[str, Any], param: str) -> None:
    answer = server.client.post(ROUTE, {"model": MODEL, "input": TEXT, **fields})
    assert (answer.status, answer.error["param"]) == (400, param), answer


@pytest.mark.parametrize("fields", [{"input": "999999999999999 " * 300}, {"input": "hello " * 1_200, "speed": 0.25}])
def test_a_text_that_takes_too_long_is_refused_before_it_is_spoken(
    server: LemonbusServer, fields: dict[str, Any]
) -> None:
    answer = server.client.post(ROUTE, {"model": MODEL, **fields})
    assert (answer.status, answer.error["param"]) == (400, "input"), answer
    assert "send it in parts" in answer.error["message"]


def test_letters_that_a_voice_does_not_speak_are_named(server: LemonbusServer) -> None:
    assert "Cyrillic" in ask(server, "Hello Привет").headers["warning"]
    answer = ask(server, "Привет")
    assert (answer.status, answer.error["param"]) == (400, "input")
    assert "Cyrillic" in answer.error["message"]


def test_a_text_without_words_is_refused(server: LemonbusServer) -> None:
    answer = ask(server, "!!! ...")
    assert (answer.status, answer.error["code"], answer.error["param"]) == (400, "invalid_request", "input"), answer
    assert "no words" in answer.error["message"]


def test_an_unknown_voice_is_told_the_known_ones(server: LemonbusServer) -> None:
    assert re.search("af_heart, am_onyx", ask(server, voice="bob").error["message"])


def test_other_models_do_not_ask(server: LemonbusServer) -> None:
    answer = ask(server, model="extra.tiny-chat")
    assert (answer.status, answer.error["param"]) == (400, "model"), answer


def test_a_request_without_a_model_gets_the_one_that_speaks(server: LemonbusServer) -> None:
    assert server.client.post("/v1/load", {"model_name": MODEL}).status == 200
    assert server.client.post(ROUTE, {"input": TEXT}).status == 200


def test_the_voices_and_the_models_are_listed_and_nothing_is_loaded(server: LemonbusServer) -> None:
    assert server.client.post("/v1/unload", {}).status == 200
    voices = server.client.get("/v1/audio/voices").json()["voices"]
    expected = [{"id": name, "name": name, "model": model} for model in (PACED, SLOW, MODEL) for name in sorted(HERTZ)]
    assert sorted(voices, key=str) == sorted(expected, key=str)
    of_one = server.client.get(f"/api/v1/audio/voices?model={MODEL}").json()["voices"]
    assert [each["id"] for each in of_one] == sorted(HERTZ)
    assert server.client.get("/v1/audio/voices?model=extra.tiny-chat").json() == {"voices": []}
    assert server.client.get("/v1/audio/voices?model=none").status == 404
    models = server.client.get("/v1/audio/models").json()["models"]
    assert sorted(models, key=str) == [{"id": name, "name": name} for name in (PACED, SLOW, MODEL)]
    assert server.health()["all_models_loaded"] == []


def test_localais_name_answers_wav(server: LemonbusServer) -> None:
    answer = server.client.post("/tts", {"model": MODEL, "input": TEXT, "voice": "onyx", "backend": "kokoro"})
    assert (answer.status, answer.headers["content-type"]) == (200, "audio/wav"), answer
    assert pitch_of(samples_of(answer.body)) == pytest.approx(HERTZ["am_onyx"], rel=0.02)
    assert server.client.post("/tts", {"model": MODEL, "input": ""}).error["param"] == "input"


@pytest.mark.parametrize(
    ("query", "kind"),
    [
        ("", "audio/mpeg"),
        ("?output_format=pcm_24000", "audio/pcm"),
        ("?output_format=opus_48000_32", "audio/ogg; codecs=opus"),
    ],
)
def test_elevenlabs_name_has_the_voice_in_its_path(server: LemonbusServer, query: str, kind: str) -> None:
    body = {"text": TEXT, "model_id": MODEL, "voice_settings": {"speed": 2, "stability": 0.5}}
    answer = server.client.post(f"/v1/text-to-speech/am_onyx{query}", body)
    assert (answer.status, answer.headers["content-type"]) == (200, kind), answer
    if "pcm" in query:
        samples = np.frombuffer(answer.body, "<i2")
        assert pitch_of(samples) == pytest.approx(HERTZ["am_onyx"], rel=0.02)
        assert len(samples) / SAMPLE_RATE == pytest.approx(SECONDS / 2, abs=0.1)


@pytest.mark.parametrize(
    ("path", "param"), [("bob", "voice"), ("am_onyx?output_format=ulaw_8000", "output_format"), ("a%00b", "voice")]
)
def test_a_wrong_name_in_elevenlabs_path_is_named(server: LemonbusServer, path: str, param: str) -> None:
    answer = server.client.post(f"/v1/text-to-speech/{path}", {"text": TEXT, "model_id": MODEL})
    assert (answer.status, answer.error["param"]) == (400, param), answer


def test_openais_client(server: LemonbusServer) -> None:
    with openai_client(server) as client:
        whole = client.audio.speech.create(model=MODEL, voice="alloy", input=TEXT, response_format="pcm").read()
        asked = client.audio.speech.with_streaming_response
        with asked.create(model=MODEL, voice="alloy", input=TEXT, response_format="pcm") as answer:
            assert b"".join(answer.iter_bytes()) == whole
    assert len(whole) / 2 / SAMPLE_RATE == pytest.approx(SECONDS, abs=0.15)


def test_it_is_sent_from_the_first_sentence_on_and_a_hang_up_stops_it_within_a_sentence(server: LemonbusServer) -> None:
    request = start(server, LONG, SLOW, response_format="pcm")
    request.until(lambda it: it.body)
    assert not request.complete
    engine = server.engine(SLOW)
    assert server.busy_slots(SLOW) == 1
    request.hang_up()
    wait_for(lambda: server.busy_slots(SLOW) == 0, "the engine has stopped")
    wait_for(lambda: server.state()["granted"] == 0, "the grant is free")
    assert server.engine_pid(SLOW) == engine.pid, "it was not restarted for that"
    assert engine_client(engine).get("/health").status == 200


def start_unread(server: LemonbusServer) -> HttpExchange:
    """Start an answer of which nothing is read, until its engine waits."""
    before = len(waits(server))
    body = {"model": PACED, "input": MUCH, "response_format": "pcm", "speed": 0.25}
    request = server.client.start("POST", ROUTE, body, connection=server.client.connect(receive_buffer=65_536))
    wait_for(lambda: len(waits(server)) > before, "the engine waits")
    return request


def waits(server: LemonbusServer) -> list[object]:
    return [line for line in server.lines if line["event"] == "the engine waits: its client reads slowly"]


def test_an_engine_waits_for_a_client_that_does_not_read_and_nothing_is_lost(server: LemonbusServer) -> None:
    request = start_unread(server)
    assert server.busy_slots(PACED) == 1, "it has not made all of it"
    chat = {"model": "extra.tiny-chat", "messages": [{"role": "user", "content": "a"}], "max_tokens": 2}
    assert server.client.post("/v1/chat/completions", chat).status == 200, "other models do not wait"
    while not request.over:
        request.read(1024 * 1024)
    assert request.complete
    assert len(request.body) / 2 / SAMPLE_RATE == pytest.approx(MUCH_SECONDS, rel=0.05)


def test_a_hang_up_frees_an_engine_that_waits_for_its_client(server: LemonbusServer) -> None:
    request = start_unread(server)
    pid = server.engine_pid(PACED)
    request.hang_up()
    wait_for(lambda: server.state()["granted"] == 0, "the grant is free")
    assert (server.busy_slots(PACED), server.engine_pid(PACED)) == (0, pid)
    assert ask(server, model=PACED).complete


@pytest.mark.parametrize("form", ["pcm", "mp3", "wav"])
def test_a_dead_engine_breaks_the_connection(server: LemonbusServer, form: str) -> None:
    """Bytes have no place for an error, and a part of a file must not look like a whole one."""
    request = start(server, LONG, SLOW, response_format=form)
    request.until(lambda it: it.body)
    processes.kill(server.engine_pid(SLOW))
    request.finish()
    assert (request.status, request.complete, request.closed) == (200, False, True), request
    server.wait_loaded(SLOW)


def test_a_dead_engine_ends_events_with_an_error(server: LemonbusServer) -> None:
    request = start(server, LONG, SLOW, response_format="pcm", stream_format="sse")
    request.until(lambda it: it.messages)
    processes.kill(server.engine_pid(SLOW))
    request.finish()
    assert request.error["code"] == "backend_died"
    assert request.messages[-1].json()["error"]["tokens_sent"] > 0
    assert all(each.get("type") != "speech.audio.done" for each in request.chunks)
    server.wait_loaded(SLOW)
