"""Decodes recordings to what whisper models need: one channel, 16,000 samples a second.

FFmpeg's libraries read the file. PyAV brings them, so no program is needed, and the usual formats all work: WAV of every
kind, MP3, FLAC, Ogg, Opus, M4A, WebM, and the sound of a video.
"""

from __future__ import annotations

import io
import itertools
from collections.abc import Callable, Iterator
from functools import partial
from typing import Final

import av
import numpy as np
from av.audio.resampler import AudioResampler
from numpy.typing import NDArray

SAMPLE_RATE_HZ: Final = 16_000
MIN_RATE_HZ, MAX_RATE_HZ = 4_000, 768_000
"""Sample rates that are read: a small file with few samples a second is hours of sound."""
MAX_DURATION_S: Final = 4 * 3600
"""Seconds of a recording: a small file may be a very long silence."""
_PACKETS_PER_CHECK: Final = 64
"""Packets between two checks whether the client is still connected."""
_CONTAINERS: Final = "aac,ac3,aiff,amr,asf,avi,caf,flac,flv,matroska,mov,mp3,mpeg,mpegts,ogg,w64,wav,webm"
"""The containers that are read, by FFmpeg's names. Playlists are not: they make FFmpeg read other files of this machine."""
_FULL_SCALE: Final = np.float32(2**15)
_CURE: Final = (
    "send WAV, MP3, FLAC, Ogg, Opus, M4A or WebM, or convert it first, as with `ffmpeg -i recording recording.wav`"
)

Samples = NDArray[np.float32]


class AudioError(ValueError):
    """A recording that cannot be read; the text is for the caller."""


# A title in an unknown encoding is no reason to refuse a recording; from 19 on, PyAV takes any without being told.
_open: Final = av.open if int(av.__version__.split(".")[0]) >= 19 else partial(av.open, metadata_errors="ignore")


def decode_audio(data: bytes, client_disconnected: Callable[[], bool] = bool) -> Samples:
    """Return the samples of a recording, from -1 to 1; raises :class:`AudioError`, or OSError if the client disconnects."""
    pieces: list[NDArray[np.int16]] = []
    length = 0
    try:
        for piece in _pieces(data, client_disconnected):
            pieces.append(piece)
            length += piece.size
            if length > MAX_DURATION_S * SAMPLE_RATE_HZ:
                raise AudioError(f"the recording is longer than {MAX_DURATION_S // 3600} hours: send it in parts")
    except av.FFmpegError:
        raise AudioError(f"the recording cannot be read: {_CURE}") from None
    # 16-bit integers until here: they take half the memory, and FFmpeg mixes their channels without making them louder.
    return np.concatenate(pieces).astype(np.float32) / _FULL_SCALE if pieces else np.zeros(0, np.float32)


def _pieces(data: bytes, client_disconnected: Callable[[], bool]) -> Iterator[NDArray[np.int16]]:
    options = {"format_whitelist": _CONTAINERS, "protocol_whitelist": ""}
    with _open(io.BytesIO(data), "r", container_options=options) as container:
        if not container.streams.audio:
            raise AudioError("the file has no sound in it")
        resampler: AudioResampler | None = None
        kind: tuple[str, str, int] | None = None
        for frame in _frames(container, client_disconnected):
            found = (frame.format.name, frame.layout.name, frame.sample_rate)
            if found != kind:
                # Recordings that were concatenated may change their format in the middle.
                yield from _resampled(resampler, None)
                if not MIN_RATE_HZ <= frame.sample_rate <= MAX_RATE_HZ:
                    what = f"the recording has {frame.sample_rate} samples a second"
                    raise AudioError(f"{what}; from {MIN_RATE_HZ} to {MAX_RATE_HZ} can be read")
                kind, resampler = found, AudioResampler("s16", "mono", SAMPLE_RATE_HZ)
            yield from _resampled(resampler, frame)
        yield from _resampled(resampler, None)


def _frames(container: av.container.InputContainer, client_disconnected: Callable[[], bool]) -> Iterator[av.AudioFrame]:
    """Yield what can be decoded: of a truncated or damaged recording, everything but the damaged parts."""
    decoded = False
    damage: Exception | None = None
    packets = container.demux(container.streams.audio[0])
    for number in itertools.count():
        if number % _PACKETS_PER_CHECK == 0 and client_disconnected():
            raise ConnectionAbortedError
        try:
            packet = next(packets, None)
            if packet is None:
                break
            for frame in packet.decode():
                decoded = True
                yield frame
        except av.FFmpegError as problem:
            damage = problem
    if damage is not None and not decoded:
        raise damage


def _resampled(resampler: AudioResampler | None, frame: av.AudioFrame | None) -> Iterator[NDArray[np.int16]]:
    """Yield a frame resampled; without one, what the resampler still holds."""
    for each in resampler.resample(frame) if resampler is not None else ():
        yield each.to_ndarray()[0]
