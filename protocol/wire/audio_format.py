"""The format of a recording, told by its first bytes, whatever its sender says, and the limit on its length. Pure.

A file in no known format is never given to a decoder: playlists and stream descriptions are texts that make decoders
open other files and addresses.
"""

from __future__ import annotations

from typing import Final

NAMES: Final = "WAV, MP3, FLAC, Ogg, Opus, M4A or WebM"
"""For messages: the formats that people send. The others of :data:`_SIGNATURES` are rare."""
MEASURED: Final = frozenset({"wav", "mp3", "flac"})
"""Formats whose length the gateway finds without decoding; third-party engines get only these.

Unusual WAV files are ``riff``.
"""
MAX_RECORDING_S: Final = 4 * 3600.0
"""Longest recording that is transcribed, in seconds: a small file may be a very long silence."""
MIN_RATE_HZ, MAX_RATE_HZ = 4_000, 768_000
"""Least sampling rate of a recording: a file with a lower one becomes much longer when it is resampled."""
_PLAIN_WAV: Final = frozenset({b"\x01\0", b"\x03\0", b"\x06\0", b"\x07\0", b"\xfe\xff"})
"""Codings of a WAV file with a fixed size for each sample."""

_SIGNATURES: Final = (
    (0, b"fLaC", "flac"),
    (0, b"ID3", "mp3"),
    (0, b"OggS", "ogg"),
    (0, b"\x1aE\xdf\xa3", "matroska"),
    (0, b"caff", "caf"),
    (0, b"#!AMR", "amr"),
    (0, b"FLV\x01", "flv"),
    (0, b"\x30\x26\xb2\x75\x8e\x66\xcf\x11", "asf"),
    (0, b"\x0b\x77", "ac3"),
    (0, b"\x00\x00\x01\xba", "mpeg"),
    (0, b"riff\x2e\x91\xcf\x11", "w64"),
    *((4, kind, "mov") for kind in (b"ftyp", b"moov", b"mdat", b"free", b"skip", b"wide")),
)
_CHUNKS: Final = {
    (b"RIFF", b"WAVE"): "riff",
    (b"RF64", b"WAVE"): "rf64",
    (b"BW64", b"WAVE"): "rf64",
    (b"RIFF", b"AVI "): "avi",
    (b"FORM", b"AIFF"): "aiff",
    (b"FORM", b"AIFC"): "aiff",
}
_TS_PACKETS: Final = ((0, 188), (4, 192))
"""Offset of the first packet of an MPEG transport stream, and the distance between packets, in bytes."""
_TS_SYNC: Final = 0x47


def recording_type(data: bytes) -> str:
    """Return the format of a recording, empty if it is not supported."""
    chunk = _CHUNKS.get((data[:4], data[8:12]))
    if chunk == "riff" and data[12:16] == b"fmt " and data[20:22] in _PLAIN_WAV:
        return "wav"
    if chunk:
        return chunk
    for offset, signature, kind in _SIGNATURES:
        if data[offset : offset + len(signature)] == signature:
            return kind
    if len(data) > 1 and data[0] == 0xFF and data[1] & 0xE0 == 0xE0:
        return "mp3" if data[1] & 0x06 else "aac"
    for offset, step in _TS_PACKETS:
        if len(data) > offset + step and data[offset] == data[offset + step] == _TS_SYNC:
            return "mpegts"
    return ""
