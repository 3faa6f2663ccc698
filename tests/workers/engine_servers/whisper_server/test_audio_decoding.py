"""How our whisper-server decodes recordings of every usual kind, and refuses other files."""

from __future__ import annotations

import contextlib
import io
import resource
import struct
from fractions import Fraction

import av
import numpy as np
import pytest

from tests.support.audio import encoded, packed, tone, wav
from workers.engine_servers.whisper_server import audio
from workers.engine_servers.whisper_server.audio import SAMPLE_RATE_HZ, AudioError, decode_audio

SECONDS = 0.25
QUIET = 2000
"""Samples at the beginning that an encoder may have filled with silence."""


def extensible(plain: bytes) -> bytes:
    """Return the same file under the longer header that programs write for 24 bits and more."""
    guid = bytes.fromhex("0100000000001000800000aa00389b71")
    head = b"\xfe\xff" + plain[22:36] + (22).to_bytes(2, "little") + plain[34:36] + bytes(4) + guid
    body = b"WAVEfmt " + len(head).to_bytes(4, "little") + head + plain[36:]
    return b"RIFF" + len(body).to_bytes(4, "little") + body


def loudness(received: audio.Samples) -> float:
    return float(np.sqrt((received[QUIET:-QUIET] ** 2).mean()))


@pytest.mark.parametrize("width", [1, 2, 3, 4])
@pytest.mark.parametrize(("rate", "channels"), [(16_000, 1), (8_000, 2), (44_100, 2), (48_000, 6), (11_025, 1)])
def test_any_wav_file_of_whole_numbers_is_heard_alike(rate: int, channels: int, width: int) -> None:
    received = decode_audio(tone(440, SECONDS, rate, channels, width))
    assert received.dtype == np.float32
    assert abs(len(received) - SECONDS * SAMPLE_RATE_HZ) <= 20
    wanted = np.sin(2 * np.pi * 440 * np.arange(len(received)) / SAMPLE_RATE_HZ) / 2
    inner = slice(200, -200)  # a tone that begins suddenly oscillates
    assert np.abs(received[inner] - wanted[inner]).max() < (0.02 if width == 1 else 0.002)


@pytest.mark.parametrize(
    ("container", "codec", "rate", "channels"),
    [
        ("wav", "pcm_f32le", 48_000, 2),
        ("wav", "pcm_mulaw", 8_000, 1),
        ("wav", "pcm_alaw", 8_000, 2),
        ("mp3", "libmp3lame", 44_100, 2),
        ("flac", "flac", 48_000, 2),
        ("ogg", "libopus", 48_000, 1),
        ("webm", "libopus", 48_000, 2),
        ("ipod", "aac", 44_100, 2),
        ("matroska", "flac", 44_100, 2),
        ("aiff", "pcm_s16be", 22_050, 1),
    ],
)
def test_what_phones_browsers_and_recorders_write(container: str, codec: str, rate: int, channels: int) -> None:
    received = decode_audio(encoded(container, codec, rate=rate, channels=channels))
    assert abs(len(received) / SAMPLE_RATE_HZ - 2) < 0.1
    assert abs(loudness(received) - 0.5 / 2**0.5) < 0.03, "two channels are as loud as one"
    crossings = np.count_nonzero(np.diff(np.signbit(received[QUIET : QUIET + SAMPLE_RATE_HZ])))
    assert abs(crossings - 880) < 5, "it has the pitch that was recorded"


def test_the_longer_header() -> None:
    plain = tone(440, 0.1, 16_000, width=3)
    assert np.array_equal(decode_audio(extensible(plain)), decode_audio(plain))


def test_a_truncated_recording_is_decoded_as_far_as_it_goes() -> None:
    whole = tone(440, 2.0, 16_000)
    missing = len(decode_audio(whole)) - len(decode_audio(whole[:-1001]))
    assert 500 < missing < 3_000, "older versions of the library drop the last packet"
    song = encoded("mp3", "libmp3lame")
    assert 0.4 < len(decode_audio(song[: len(song) // 2])) / SAMPLE_RATE_HZ / 2 < 0.6


def test_a_recording_that_is_damaged_inside_is_heard_beside_the_damage() -> None:
    song = encoded("mp3", "libmp3lame")
    middle = len(song) // 2
    received = decode_audio(song[:middle] + bytes(2000) + song[middle + 2000 :])
    assert 1.6 < len(received) / SAMPLE_RATE_HZ <= 2


def test_recordings_that_were_joined_may_change_in_the_middle() -> None:
    joined = encoded("mp3", "libmp3lame") + encoded("mp3", "libmp3lame", rate=22_050, channels=1)
    assert abs(len(decode_audio(joined)) / SAMPLE_RATE_HZ - 4) < 0.2


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "cannot be read: send WAV, MP3"),
        (b"ID3\x04 a song", "ffmpeg -i recording recording.wav"),
        (b"RIFF\0\0\0\0WAVE", "cannot be read"),
        (wav(0.1)[:30], "cannot be read"),
        (packed(b"\0\0" * 99, rate=100), "100 samples a second; from 4000"),
        (packed(b"\0\0" * 99, rate=999_999), "999999 samples a second"),
        (encoded("ipod", "aac")[:20_000], "cannot be read"),
    ],
)
def test_undecodable_audio_is_refused(data: bytes, why: str) -> None:
    with pytest.raises(AudioError, match=why):
        decode_audio(data)


def test_a_picture_has_no_sound() -> None:
    with pytest.raises(AudioError, match="no sound in it"):
        decode_audio(
            encoded("matroska", "flac", 0.1).replace(b"A_FLAC", b"V_FLAC").replace(b"\x83\x81\x02", b"\x83\x81\x01")
        )


def test_a_playlist_names_files_of_this_machine_that_are_not_read() -> None:
    lists = [
        b"#EXTM3U\n#EXT-X-TARGETDURATION:9\n#EXTINF:9,\n%s\n#EXT-X-ENDLIST\n",
        b"ffconcat version 1.0\nfile '%s'\nduration 9\n",
        b"v=0\no=- 0 0 IN IP4 127.0.0.1\ns=x\nc=IN IP4 127.0.0.1\nt=0 0\nm=audio 9 RTP/AVP 0\n%s\n",
    ]
    for text in lists:
        with pytest.raises(AudioError, match="cannot be read"):
            decode_audio(text % b"/usr/share/sounds/a.wav")


@pytest.mark.parametrize(
    ("box", "offset", "numbers"),
    [
        (b"stsz", 8, (1, 2**31 - 1)),
        (b"stsz", 8, (0, 2**28 - 1)),
        (b"stts", 8, (2**31 - 1,)),
        (b"stsc", 12, (1, 2**31 - 1)),
    ],
)
def test_a_header_that_claims_too_much_takes_no_memory(box: bytes, offset: int, numbers: tuple[int, ...]) -> None:
    data = bytearray(encoded("mp4", "aac", 0.5))
    struct.pack_into(f">{len(numbers)}I", data, data.index(box) + offset, *numbers)
    limits = resource.getrlimit(resource.RLIMIT_AS)
    with contextlib.suppress(AudioError):
        assert len(decode_audio(bytes(data))) <= SAMPLE_RATE_HZ
    assert resource.getrlimit(resource.RLIMIT_AS) == limits


def test_a_file_has_the_format_of_its_first_bytes_and_no_other() -> None:
    playlist = b"#EXTM3U\n#EXTINF:9,\n/usr/share/sounds/a.wav\n#EXT-X-ENDLIST\n"
    for begin in (b"ID3\4\0\0\0\0\0\0", b"fLaC", b"OggS", b"\x1aE\xdf\xa3", b"\0\0\0\x14ftyp"):
        with contextlib.suppress(AudioError):
            assert not decode_audio(begin + playlist).size


def test_of_a_video_only_the_sound_is_decoded() -> None:
    file = io.BytesIO()
    with av.open(file, "w", format="matroska") as output:
        sound, film = output.add_stream("flac", rate=16_000), output.add_stream("mjpeg", rate=10)
        film.width, film.height, film.pix_fmt = 64, 64, "yuvj420p"
        picture = av.VideoFrame(64, 64, "yuvj420p")
        picture.pts, picture.time_base = 0, Fraction(1, 10)
        output.mux([*film.encode(picture), *film.encode(None)])
        silence = av.AudioFrame.from_ndarray(np.zeros((1, 4_608), np.int16), format="s16", layout="mono")
        silence.sample_rate, silence.pts = 16_000, 0
        output.mux([*sound.encode(silence), *sound.encode(None)])
    assert len(decode_audio(file.getvalue())) == 4_608
    assert "mjpeg" not in audio._CODECS.split(",")
    with pytest.raises(AudioError, match=r"not read here|cannot be read"):
        decode_audio(encoded("matroska", "tta", 0.1))


def test_decoding_has_a_limit_of_processor_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audio, "MAX_DECODING_S", -1.0)
    with pytest.raises(AudioError, match="takes more than"):
        decode_audio(wav(0.1))


def test_a_small_file_may_be_a_very_long_silence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audio, "MAX_RECORDING_S", 1)
    with pytest.raises(AudioError, match="longer than"):
        decode_audio(encoded("flac", "flac", 1.5))


def test_audio_of_a_cancelled_request_is_not_decoded() -> None:
    asked: list[int] = []

    def client_disconnected() -> bool:
        asked.append(1)
        return len(asked) == 3

    with pytest.raises(ConnectionAbortedError):
        decode_audio(wav(30.0, rate=8_000), client_disconnected=client_disconnected)
    assert len(asked) == 3
