"""The greatest possible length of a recording, whatever its header says, and its kind."""

from __future__ import annotations

import struct

import pytest

from gateway.decoding.audio_duration import RecordingError, measure_recording
from protocol.wire.audio_format import MEASURED, recording_type
from tests.support.audio import encoded, packed, wav
from tests.support.media import playlist

HOUR = 3600.0


@pytest.mark.parametrize(
    ("container", "codec", "kind"),
    [
        ("wav", "pcm_s16le", "wav"),
        ("wav", "pcm_mulaw", "wav"),
        ("wav", "adpcm_ms", "riff"),
        ("mp3", "libmp3lame", "mp3"),
        ("flac", "flac", "flac"),
        ("ogg", "libopus", "ogg"),
        ("mp4", "aac", "mov"),
        ("mov", "aac", "mov"),
        ("webm", "libopus", "matroska"),
        ("adts", "aac", "aac"),
        ("aiff", "pcm_s16be", "aiff"),
        ("avi", "libmp3lame", "avi"),
        ("caf", "pcm_s16be", "caf"),
        ("flv", "aac", "flv"),
        ("ac3", "ac3", "ac3"),
        ("mpegts", "aac", "mpegts"),
        ("w64", "pcm_s16le", "w64"),
    ],
)
def test_the_first_bytes_tell_the_format(container: str, codec: str, kind: str) -> None:
    data = encoded(container, codec, rate=48_000)
    assert recording_type(data[:400]) == kind
    if kind in MEASURED:
        measured = measure_recording(data, HOUR)
        assert measured.kind == kind
        assert 1.9 < measured.seconds < 2.4


@pytest.mark.parametrize(
    "data",
    [
        b"",
        playlist("http://127.0.0.1"),
        b"ffconcat version 1.0\nfile x\n",
        b"v=0\r\no=- 0 0 IN IP4 127.0.0.1\r\n",
        b"<?xml version='1.0'?><MPD/>",
        b"[playlist]\nFile1=http://127.0.0.1/\n",
        b"\xef\xbb\xbf#EXTM3U\n",
        bytes(1000),
        b"\x89PNG\r\n\x1a\n",
    ],
)
def test_a_playlist_is_not_a_recording(data: bytes) -> None:
    assert recording_type(data) == ""
    with pytest.raises(RecordingError):
        measure_recording(data, HOUR)


@pytest.mark.parametrize("rate", [8_000, 16_000, 22_050, 44_100, 48_000])
@pytest.mark.parametrize(("container", "codec"), [("mp3", "libmp3lame"), ("flac", "flac")])
def test_every_rate_is_measured(container: str, codec: str, rate: int) -> None:
    seconds = measure_recording(encoded(container, codec, 3.0, rate, 1), HOUR).seconds
    assert 3.0 <= seconds < 3.3


def test_a_wav_header_that_lies_is_replaced() -> None:
    data = bytearray(wav(1.0))
    at = data.index(b"data") + 4
    for lie in (0, 10, 0x7FFF_FFFF, 0xFFFF_FFFF):
        struct.pack_into("<I", data, at, lie)
        measured = measure_recording(bytes(data), HOUR)
        assert len(measured.data) <= len(data)
        (size,) = struct.unpack_from("<I", measured.data, measured.data.index(b"data") + 4)
        assert size == len(measured.data) - 44
        assert measured.seconds == min(lie, 32_000) // 2 / 16_000


@pytest.mark.parametrize(
    ("rate", "words"), [(1, "samples a second"), (3_999, "samples"), (0, "samples"), (2**31, "samples")]
)
def test_a_wav_of_few_samples_a_second_is_refused(rate: int, words: str) -> None:
    data = bytearray(wav(0.1))
    struct.pack_into("<I", data, 24, rate)
    with pytest.raises(RecordingError, match=words):
        measure_recording(bytes(data), HOUR)


@pytest.mark.parametrize(
    "data",
    [
        wav(0.1)[:30],
        b"RIFF\0\0\0\0WAVE",
        encoded("wav", "adpcm_ms"),
        packed(bytes(100), channels=20),
        wav(0.1).replace(b"fmt \x10", b"fmt \x02"),
        b"fLaC" + bytes(40),
        b"fLaC\0\0\0\x22" + b"\xff" * 8,
        b"ID3\4\0\0\0\0\0\0" + playlist("http://127.0.0.1"),
        b"\xff\xfb\x00\x00" * 100,
    ],
)
def test_a_damaged_or_compressed_file_is_refused(data: bytes) -> None:
    with pytest.raises(RecordingError):
        measure_recording(data, HOUR)


def test_data_before_the_sound_is_left_out() -> None:
    """It may be a file of another format, which a reader might try instead."""
    lying = bytearray(flac_of_constant_blocks(1))
    lying[21] |= 0x0F
    song = encoded("mp3", "libmp3lame", 1.0)
    for flags in (b"\0", b"\x10"):
        tag = b"ID3\4\0" + flags + bytes([0, 0, len(lying) >> 7, len(lying) & 0x7F]) + bytes(lying)
        for mixed in (tag + song, tag[:10] + bytes(len(lying)) + bytes(lying) + song):
            measured = measure_recording(mixed, HOUR)
            assert measured.data[0] == 0xFF
            assert len(measured.data) <= len(song) + len(lying)
    plain = flac_of_constant_blocks(3)
    described = plain[:4] + b"\0" + plain[5:42] + b"\x86" + len(song).to_bytes(3) + song + plain[42:]
    measured = measure_recording(described, HOUR)
    assert measured.data == plain
    for broken in (described[:60], plain[:42], plain[:4] + b"\0" + plain[5:]):
        with pytest.raises(RecordingError):
            measure_recording(broken, HOUR)


def test_hours_of_silence_in_a_small_file_are_refused() -> None:
    mp3 = encoded("mp3", "libmp3lame", 60.0, 8_000, 1)
    flac = encoded("flac", "flac", 2.0, 8_000, 1)
    silence = flac_of_constant_blocks(20_000)
    assert len(silence) < 300_000
    for data in (mp3 * 100, silence):
        with pytest.raises(RecordingError, match="longer"):
            measure_recording(data, HOUR)
    lying = bytearray(flac)
    lying[21] |= 0x0F  # the total of samples in the header
    with pytest.raises(RecordingError, match="longer"):
        measure_recording(bytes(lying), HOUR)


def crc_8(data: bytes) -> int:
    """Return the checksum of a frame's header."""
    value = 0
    for byte in data:
        value ^= byte
        for _ in range(8):
            value = (value << 1 ^ (0x07 if value & 0x80 else 0)) & 0xFF
    return value


def test_a_frame_may_have_a_slower_rate_than_its_file() -> None:
    plain = bytearray(flac_of_constant_blocks(1))
    plain[18:21] = (96_000 << 4 | plain[20] & 0x0F).to_bytes(3)
    assert measure_recording(bytes(plain), HOUR).seconds == 32_768 / 8_000


def flac_of_constant_blocks(count: int) -> bytes:
    """Return blocks of 32,768 samples of silence, of a dozen bytes each."""
    info = struct.pack(">HH", 16, 32_768) + bytes(6) + (8_000 << 44 | 15 << 36).to_bytes(8) + bytes(16)
    head = b"\xff\xf8\xf4\x00\x00"
    block = head + bytes([crc_8(head)]) + bytes(5)
    return b"fLaC\x80" + len(info).to_bytes(3) + info + block * count
