"""Formats of live audio, and the turns that are found in it."""

from __future__ import annotations

import math
from array import array

import av
import pytest

from gateway.api.openai.realtime.audio_format import PCM, PCMA, PCMU, AudioFormat, audio_format, wav
from gateway.api.openai.realtime.input_audio_buffer import Change, FoundTurn, InputAudioBuffer, SpeechStarted
from gateway.api.openai.realtime.speech_detection import TurnDetection, loudness, threshold_loudness
from gateway.decoding.audio_duration import measure_recording
from protocol.failures import LemonbusError

RATE = 16_000
FORMAT = AudioFormat(PCM, RATE)
DETECTION = TurnDetection(prefix_padding_ms=100, silence_duration_ms=200)
MOST = 10_000_000


def tone(ms: int, level: float = 0.2, rate: int = RATE) -> bytes:
    """Return a sine whose root mean square is ``level``."""
    peak = level * math.sqrt(2) * 32_767
    return array("h", [round(peak * math.sin(n)) for n in range(rate * ms // 1000)]).tobytes()


def silence(ms: int) -> bytes:
    return bytes(2 * RATE * ms // 1000)


def buffer(detection: TurnDetection | None = DETECTION) -> InputAudioBuffer:
    return InputAudioBuffer(FORMAT, detection, MOST)


def changes_of(audio: InputAudioBuffer, *pieces: bytes) -> list[Change]:
    return [change for piece in pieces for change in audio.append(piece)]


def shown(changes: list[Change]) -> list[tuple[str, int]]:
    """Return the changes, a turn by its length in milliseconds."""
    return [
        ("turn", len(change.samples) // (2 * RATE // 1000))
        if isinstance(change, FoundTurn)
        else ("started" if isinstance(change, SpeechStarted) else "stopped", change.at_ms)
        for change in changes
    ]


@pytest.mark.parametrize(("kind", "codec"), [(PCMU, "pcm_mulaw"), (PCMA, "pcm_alaw")])
def test_g711_is_what_ffmpeg_reads(kind: str, codec: str) -> None:
    decoder = av.AudioCodecContext.create(codec, "r")
    decoder.sample_rate, decoder.layout = 8_000, "mono"
    codes = bytes(range(256))
    [frame] = decoder.decode(av.Packet(codes))
    assert AudioFormat(kind, 8_000).decode(codes) == bytes(frame.planes[0])[:512]


@pytest.mark.parametrize(
    ("name", "rate", "form"),
    [
        ("pcm16", None, AudioFormat(PCM, 24_000)),
        (PCM, 16_000, AudioFormat(PCM, 16_000)),
        ("g711_ulaw", None, AudioFormat(PCMU, 8_000)),
        (PCMA, 8_000, AudioFormat(PCMA, 8_000)),
    ],
)
def test_names_of_formats(name: str, rate: int | None, form: AudioFormat) -> None:
    assert audio_format(name, rate) == form
    assert audio_format(form.short_name, rate) == form


@pytest.mark.parametrize(("name", "rate"), [("mp3", None), (PCM, 100), (PCM, 96_000), (PCMU, 16_000)])
def test_formats_that_are_not_served(name: str, rate: int | None) -> None:
    with pytest.raises(ValueError, match=r"must be|samples"):
        audio_format(name, rate)


def test_a_turn_is_a_wav_file_as_long_as_it_is() -> None:
    recording = measure_recording(wav(tone(1500), RATE), 10.0)
    assert recording.seconds == 1.5
    assert recording.data.endswith(tone(1500))


def test_speech_between_silences_is_a_turn_with_padding() -> None:
    changes = changes_of(buffer(), silence(1000), tone(400), silence(1000))
    assert shown(changes) == [("started", 900), ("stopped", 1600), ("turn", 700)]
    assert isinstance(changes[-1], FoundTurn)
    assert changes[-1].samples == silence(100) + tone(400) + silence(200)


@pytest.mark.parametrize("step", [2, 639, 640, 10_001])
def test_pieces_of_any_size_make_the_same_turns(step: int) -> None:
    whole = silence(500) + tone(300) + silence(600) + tone(500) + silence(300)
    pieces = [whole[start : start + step] for start in range(0, len(whole), step)]
    assert changes_of(buffer(), *pieces) == changes_of(buffer(), whole)
    assert [kind for kind, _ in shown(changes_of(buffer(), whole))] == ["started", "stopped", "turn"] * 2


def test_clicks_and_pauses_are_not_boundaries() -> None:
    assert changes_of(buffer(), silence(500), tone(40), silence(500)) == []
    changes = shown(changes_of(buffer(), tone(300), silence(160), tone(300), silence(500)))
    assert [kind for kind, _ in changes] == ["started", "stopped", "turn"]


@pytest.mark.parametrize(
    ("threshold", "level", "found"),
    [
        (0.5, 0.008, False),
        (0.5, 0.02, True),
        (0.9, 0.05, False),
        (0.9, 0.2, True),
        (0.3, 0.005, True),
        (0.01, 0.02, True),
    ],
)
def test_the_threshold(threshold: float, level: float, found: bool) -> None:
    audio = buffer(TurnDetection(threshold=threshold))
    assert bool(changes_of(audio, silence(500), tone(300, level), silence(1000))) == found


def test_thresholds_of_openai_and_of_lemonade() -> None:
    assert threshold_loudness(0.5) == pytest.approx(0.01)
    assert threshold_loudness(0.02) == 0.02
    assert threshold_loudness(0.0) > 0
    assert threshold_loudness(1.0) < 1
    assert loudness(memoryview(tone(20, 0.1)).cast("h"), RATE) == pytest.approx(0.1, rel=0.1)


def test_steady_noise_is_not_speech_for_long_and_speech_over_it_is_found() -> None:
    noise = tone(15_000, 0.015)
    audio = buffer()
    changes_of(audio, noise)
    assert changes_of(audio, tone(2_000, 0.015)) == []
    assert [kind for kind, _ in shown(changes_of(audio, tone(300, 0.2), tone(1_000, 0.015)))] == [
        "started",
        "stopped",
        "turn",
    ]


def test_speech_without_a_pause_is_cut() -> None:
    audio = buffer(DETECTION)
    changes = [change for _ in range(13) for change in changes_of(audio, tone(4_900), silence(100))]
    assert [kind for kind, _ in shown(changes)] == ["started", "stopped", "turn", "started"]
    assert shown(changes)[2] == ("turn", 60_000)


def test_without_detection_turns_are_what_is_committed() -> None:
    audio = buffer(None)
    assert changes_of(audio, tone(150), silence(2_000)) == []
    assert audio.commit() == tone(150) + silence(2_000)
    changes_of(audio, tone(99))
    with pytest.raises(LemonbusError, match="99 ms"):
        audio.commit()
    audio.clear()
    assert audio.size == 0


def test_a_commit_ends_the_speech_that_goes_on() -> None:
    audio = buffer()
    assert [kind for kind, _ in shown(changes_of(audio, tone(400)))] == ["started"]
    assert len(audio.commit()) == len(tone(400))
    assert shown(changes_of(audio, tone(200), silence(500))) == [("started", 400), ("stopped", 800), ("turn", 400)]


def test_the_buffer_is_bounded() -> None:
    audio = InputAudioBuffer(FORMAT, None, len(tone(1000)))
    changes_of(audio, tone(900))
    with pytest.raises(LemonbusError, match="full"):
        changes_of(audio, tone(200))
    assert audio.size == len(tone(900))
    listening = buffer()
    changes_of(listening, silence(10_000))
    assert listening.size < len(silence(300))


def test_another_format_empties_the_buffer_and_time_goes_on() -> None:
    audio = buffer()
    changes_of(audio, silence(1_000), b"\0")
    audio.configure(AudioFormat(PCMU, 8_000), DETECTION)
    assert audio.size == 0
    coded = b"\xff" * 8_000 + b"\x90\x10" * 2_400 + b"\xff" * 4_000
    assert [kind for kind, _ in shown(changes_of(audio, coded))] == ["started", "stopped", "turn"]
    assert changes_of(audio, b"\xff" * 8_000) == []
