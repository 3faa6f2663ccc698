"""What our whisper-server makes of recordings."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from tests.house.sounds import packed, tone, wav
from workers.engines.sound import RATE, SoundError, resampled, samples

SECONDS = 0.25


def extensible(plain: bytes) -> bytes:
    """Return the same file under the longer header that programs write for 24 bits and more."""
    guid = bytes.fromhex("0100000000001000800000aa00389b71")
    head = b"\xfe\xff" + plain[22:36] + (22).to_bytes(2, "little") + plain[34:36] + bytes(4) + guid
    body = b"WAVEfmt " + len(head).to_bytes(4, "little") + head + plain[36:]
    return b"RIFF" + len(body).to_bytes(4, "little") + body


@pytest.mark.parametrize("width", [1, 2, 3, 4])
@pytest.mark.parametrize(("rate", "channels"), [(16_000, 1), (8_000, 2), (44_100, 2), (48_000, 6), (11_025, 1)])
def test_any_wav_file_is_heard_alike(rate: int, channels: int, width: int) -> None:
    heard = samples(tone(440, SECONDS, rate, channels, width), convert=False)
    assert heard.dtype == np.float32
    assert abs(len(heard) - SECONDS * RATE) <= 1
    wanted = np.sin(2 * np.pi * 440 * np.arange(len(heard)) / RATE) / 2
    inner = slice(200, -200)  # a tone that begins suddenly rings
    assert np.abs(heard[inner] - wanted[inner]).max() < (0.02 if width == 1 else 0.001)


def test_what_no_model_hears_does_not_come_back_as_something_else() -> None:
    high = np.sin(2 * np.pi * 11_000 * np.arange(24_000) / 48_000).astype(np.float32)
    assert np.abs(resampled(high, 48_000)[200:-200]).max() < 0.004


def test_the_longer_header() -> None:
    plain = tone(440, 0.1, 16_000, width=3)
    assert np.array_equal(samples(extensible(plain), convert=False), samples(plain, convert=False))


def test_a_recording_that_broke_off_is_heard_as_far_as_it_goes() -> None:
    whole = tone(440, 0.2, 16_000)
    assert len(samples(whole[:-1001], convert=False)) == (len(whole) - 44 - 1002) // 2


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "no WAV file"),
        (b"ID3\x04 a song", "PCM in a WAV file is what is accepted"),
        (b"RIFF\0\0\0\0WAVE", "cannot be read"),
        (wav(0.1)[:30], "truncated"),
        (wav(0.1)[:20] + b"\x03\0" + wav(0.1)[22:], "unknown format: 3"),
        (packed(b"\0\0", rate=1), "1 samples a second"),
        (packed(b"\0\0", rate=999_999), "999999 samples a second"),
        (packed(b"\0\0", channels=1)[:22] + b"\0\0" + packed(b"\0\0")[24:], "cannot be read"),
        (wav(0.1)[:34] + b"\x40\0" + wav(0.1)[36:], "8 bytes"),
    ],
)
def test_what_cannot_be_heard(data: bytes, why: str) -> None:
    with pytest.raises(SoundError, match=why):
        samples(data, convert=False)


def put_ffmpeg(folder: Path, script: str, monkeypatch: pytest.MonkeyPatch) -> None:
    program = folder / "ffmpeg"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")


def test_ffmpeg_converts_the_rest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = 'for word; do [ "$before" = -i ] && cat "$word"; before=$word; done'
    put_ffmpeg(tmp_path, script, monkeypatch)
    assert samples(b"\0\x40\0\xc0!", convert=True).tolist() == [0.5, -0.5]


def test_ffmpeg_fails_or_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put_ffmpeg(tmp_path, "echo no >&2; exit 1", monkeypatch)
    with pytest.raises(SoundError, match="none that ffmpeg can convert"):
        samples(b"a song", convert=True)
    monkeypatch.setenv("PATH", "")
    with pytest.raises(SoundError, match="no ffmpeg here"):
        samples(b"a song", convert=True)
