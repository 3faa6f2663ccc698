"""Decodes recordings for whisper models: one channel, 16,000 samples a second.

FFmpeg's libraries read the file. They come with PyAV, so no program is needed, and the usual formats all work: WAV of
every kind, MP3, FLAC, Ogg, Opus, M4A, WebM, and the sound of a video.
"""

from __future__ import annotations

import io
import itertools
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Final

import av
import numpy as np
from av.audio.resampler import AudioResampler
from numpy.typing import NDArray

from protocol.runtime.memory import limited_growth
from protocol.wire.audio_format import MAX_RATE_HZ, MAX_RECORDING_S, MIN_RATE_HZ, NAMES, recording_type

SAMPLE_RATE_HZ: Final = 16_000
MAX_DECODING_S: Final = 300.0
"""Processor seconds that decoding may take; four hours of Opus take a minute."""
MAX_DECODING_BYTES: Final = 5 * 2**29
"""Bytes by which decoding may extend the process's address space: a header may claim any number of samples. Four hours take 1.4 GB."""
_PACKETS_PER_CHECK: Final = 64
"""Packets between two checks whether the client is still connected."""
_DEMUXERS: Final = {"riff": "wav", "rf64": "wav"}
"""Format → FFmpeg's name for its reader, if that differs."""
_OTHER_CODECS: Final = frozenset(
    {"aac", "ac3", "alac", "amrnb", "amrwb", "eac3", "flac", "g722", "gsm", "gsm_ms", "libopus"}
    | {"mp1float", "mp2", "mp2float", "mp3", "mp3float"}
    | {"opus", "speex", "vorbis", "wmav1", "wmav2", "wmavoice", "wmapro"}
)
_CODECS: Final = ",".join(
    sorted(name for name in av.codecs_available if name in _OTHER_CODECS or name.startswith(("pcm_", "adpcm_")))
)
"""Codings that are decoded. Of a video, only the sound is read; nothing else is even looked at."""
_FULL_SCALE: Final = np.float32(2**15)
_CURE: Final = f"send {NAMES}, or convert it first, as with `ffmpeg -i recording recording.wav`"

Samples = NDArray[np.float32]


class AudioError(ValueError):
    """A recording that cannot be read; the text is for the caller."""


# A title in an unknown encoding is not a reason to refuse a recording. From version 19 on, PyAV accepts any by default.
_open: Final = av.open if int(av.__version__.split(".")[0]) >= 19 else partial(av.open, metadata_errors="ignore")


def decode_audio(data: bytes, client_disconnected: Callable[[], bool] = bool) -> Samples:
    """Return the samples of a recording, from -1 to 1; raises :class:`AudioError`, or OSError if the client disconnects."""
    kind = recording_type(data)
    if not kind:
        raise AudioError(f"the recording cannot be read: {_CURE}")
    try:
        with limited_growth(MAX_DECODING_BYTES):  # one recording is decoded at a time
            return _joined(_pieces(data, _DEMUXERS.get(kind, kind), client_disconnected))
    except MemoryError:
        raise AudioError(f"decoding the recording takes too much memory: {_CURE}") from None
    except av.FFmpegError:
        raise AudioError(f"the recording cannot be read: {_CURE}") from None


def _joined(found: Iterator[NDArray[np.int16]]) -> Samples:
    pieces: list[NDArray[np.int16]] = []
    length = 0
    for piece in found:
        pieces.append(piece)
        length += piece.size
        if length > MAX_RECORDING_S * SAMPLE_RATE_HZ:
            raise AudioError(f"the recording is longer than {MAX_RECORDING_S / 3600:g} hours: send it in parts")
    # 16-bit integers up to here: they take half the memory, and FFmpeg mixes their channels without making them louder.
    samples = np.empty(length, np.float32)
    end = length
    while pieces:
        piece = pieces.pop()
        np.divide(piece, _FULL_SCALE, out=samples[end - piece.size : end], dtype=np.float32)
        end -= piece.size
    return samples


def _pieces(data: bytes, demuxer: str, client_disconnected: Callable[[], bool]) -> Iterator[NDArray[np.int16]]:
    options = {"format_whitelist": demuxer, "protocol_whitelist": "", "codec_whitelist": _CODECS}
    with _open(io.BytesIO(data), "r", format=demuxer, container_options=options) as container:
        if not container.streams.audio:
            raise AudioError("the file has no sound in it")
        if container.streams.audio[0].codec_context.name not in _CODECS.split(","):
            raise AudioError(f"the recording has an encoding that is not read here: {_CURE}")
        resampler: AudioResampler | None = None
        kind: tuple[str, str, int] | None = None
        for frame in _frames(container, client_disconnected):
            found = (frame.format.name, frame.layout.name, frame.sample_rate)
            if found != kind:
                # Concatenated recordings may change their format in the middle.
                yield from _resampled(resampler, None)
                if not MIN_RATE_HZ <= frame.sample_rate <= MAX_RATE_HZ:
                    what = f"the recording has {frame.sample_rate} samples a second"
                    raise AudioError(f"{what}; from {MIN_RATE_HZ} to {MAX_RATE_HZ} can be read")
                kind, resampler = found, AudioResampler("s16", "mono", SAMPLE_RATE_HZ)
            yield from _resampled(resampler, frame)
        yield from _resampled(resampler, None)


def _frames(container: av.container.InputContainer, client_disconnected: Callable[[], bool]) -> Iterator[av.AudioFrame]:
    """Yield what can be decoded: of a truncated or damaged recording, everything except the damaged parts."""
    decoded = False
    damage: Exception | None = None
    packets = container.demux(container.streams.audio[0])
    started = time.thread_time()
    for number in itertools.count():
        if number % _PACKETS_PER_CHECK == 0:
            if client_disconnected():
                raise ConnectionAbortedError
            if time.thread_time() - started > MAX_DECODING_S:
                raise AudioError(f"decoding the recording takes more than {MAX_DECODING_S:g} s: send it in parts")
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
