"""The transcript of a recording, and the formats in which OpenAI's clients want it. Pure.

A :class:`Transcript` as JSON is the internal answer to ``audio/transcriptions`` and ``audio/translations``. Times are
seconds from the beginning of the recording.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec

_NAMES: Final = """
af afrikaans, am amharic, ar arabic, as assamese, az azerbaijani, ba bashkir, be belarusian, bg bulgarian, bn bengali,
bo tibetan, br breton, bs bosnian, ca catalan, cs czech, cy welsh, da danish, de german, el greek, en english, es spanish,
et estonian, eu basque, fa persian, fi finnish, fo faroese, fr french, gl galician, gu gujarati, ha hausa, haw hawaiian,
he hebrew, hi hindi, hr croatian, ht haitian creole, hu hungarian, hy armenian, id indonesian, is icelandic, it italian,
ja japanese, jw javanese, ka georgian, kk kazakh, km khmer, kn kannada, ko korean, la latin, lb luxembourgish,
ln lingala, lo lao, lt lithuanian, lv latvian, mg malagasy, mi maori, mk macedonian, ml malayalam, mn mongolian,
mr marathi, ms malay, mt maltese, my myanmar, ne nepali, nl dutch, nn nynorsk, no norwegian, oc occitan, pa punjabi,
pl polish, ps pashto, pt portuguese, ro romanian, ru russian, sa sanskrit, sd sindhi, si sinhala, sk slovak, sl slovenian,
sn shona, so somali, sq albanian, sr serbian, su sundanese, sv swedish, sw swahili, ta tamil, te telugu, tg tajik, th thai,
tk turkmen, tl tagalog, tr turkish, tt tatar, uk ukrainian, ur urdu, uz uzbek, vi vietnamese, yi yiddish, yo yoruba,
yue cantonese, zh chinese
"""

LANGUAGES: Final[dict[str, str]] = {
    code: name for code, _, name in (item.strip().partition(" ") for item in _NAMES.split(","))
}
"""Language code → its English name, for the languages that whisper models know."""

_OTHER_NAMES: Final = {
    "burmese": "my",
    "castilian": "es",
    "flemish": "nl",
    "haitian": "ht",
    "letzeburgesch": "lb",
    "mandarin": "zh",
    "moldavian": "ro",
    "moldovan": "ro",
    "panjabi": "pa",
    "pushto": "ps",
    "sinhalese": "si",
    "valencian": "ca",
}
"""Names that whisper's own tokenizer accepts besides those of :data:`LANGUAGES`."""
_CODES: Final = {code: code for code in LANGUAGES} | {name: code for code, name in LANGUAGES.items()} | _OTHER_NAMES
AUTO: Final = "auto"
"""The engine detects the language."""


def language_code(language: str) -> str:
    """Return the code of a language given by name or code, which may include a region (``en-US``).

    :data:`AUTO` is also accepted. Empty for a language that whisper models do not know.
    """
    name = language.strip().lower()
    return AUTO if name == AUTO else _CODES.get(name) or _CODES.get(name.replace("_", "-").partition("-")[0], "")


class TranscriptWord(msgspec.Struct):
    """One word with its times."""

    word: str
    start: float = 0.0
    end: float = 0.0


class TranscriptSegment(msgspec.Struct):
    """A piece of a transcript. Values that an engine does not report are None."""

    id: int = 0
    start: float = 0.0
    end: float = 0.0
    text: str = ""
    tokens: list[int] = []
    temperature: float | None = None
    avg_logprob: float | None = None
    no_speech_prob: float | None = None
    words: list[TranscriptWord] = []


class TranscriptUsage(msgspec.Struct):
    """The token counts of a transcript, with the field names of a chat's usage."""

    completion_tokens: int = 0
    prompt_tokens: int = 0


class Transcript(msgspec.Struct):
    """A whole transcript."""

    task: str = "transcribe"
    language: str = ""
    duration: float = 0.0
    text: str = ""
    segments: list[TranscriptSegment] = []
    usage: TranscriptUsage | None = None


def lacks_words(transcript: Transcript) -> bool:
    """Return whether words were spoken, and the engine does not say when."""
    return any(map(str.isalnum, transcript.text)) and not any(each.words for each in transcript.segments)


def as_text(transcript: Transcript) -> str:
    """Return the text alone."""
    return transcript.text + "\n"


def as_srt(transcript: Transcript) -> str:
    """Return subtitles in SubRip's format."""
    return "".join(
        f"{number}\n{_timestamp(each.start, ',')} --> {_timestamp(each.end, ',')}\n{each.text.strip()}\n\n"
        for number, each in enumerate(transcript.segments, 1)
    )


def as_webvtt(transcript: Transcript) -> str:
    """Return subtitles in WebVTT's format. An arrow within a text would begin another subtitle."""
    cues = (
        f"{_timestamp(each.start, '.')} --> {_timestamp(each.end, '.')}\n{each.text.strip().replace('-->', '->')}\n\n"
        for each in transcript.segments
    )
    return "WEBVTT\n\n" + "".join(cues)


def as_json(transcript: Transcript) -> dict[str, Any]:
    """Return OpenAI's short JSON."""
    return {"text": transcript.text, "usage": _usage(transcript)}


def as_verbose_json(transcript: Transcript, granularities: Sequence[str] = ()) -> dict[str, Any]:
    """Return OpenAI's long JSON with ``segment`` and ``word`` times; with segments if neither is named."""
    body: dict[str, Any] = {
        "task": transcript.task,
        "language": transcript.language,
        "duration": transcript.duration,
        "text": transcript.text,
        "usage": _usage(transcript),
    }
    if "word" in granularities:
        body["words"] = [msgspec.to_builtins(word) for each in transcript.segments for word in each.words]
    if "segment" in granularities or not granularities:
        body["segments"] = [_segment(each) for each in transcript.segments]
    return body


_TEXT: Final = "text/plain; charset=utf-8"
TEXT_FORMATS: Final[dict[str, tuple[str, Callable[[Transcript], str]]]] = {
    "text": (_TEXT, as_text),
    "srt": (_TEXT, as_srt),
    "vtt": (_TEXT, as_webvtt),
}
"""Format that is not JSON → its media type and its writer. OpenAI also sends subtitles as plain text."""
RESPONSE_FORMATS: Final = ("json", *TEXT_FORMATS, "verbose_json")
TIMED_FORMATS: Final = ("srt", "vtt", "verbose_json")
"""Formats with times, for which segments are needed."""


def _segment(each: TranscriptSegment) -> dict[str, Any]:
    packed = len(zlib.compress(each.text.encode())) or 1
    return {
        "id": each.id,
        "seek": 0,
        "start": each.start,
        "end": each.end,
        "text": each.text,
        "tokens": each.tokens,
        "temperature": each.temperature,
        "avg_logprob": each.avg_logprob,
        "compression_ratio": round(len(each.text.encode()) / packed, 4),
        "no_speech_prob": each.no_speech_prob,
    }


def _usage(transcript: Transcript) -> dict[str, Any]:
    return {"type": "duration", "seconds": math.ceil(transcript.duration)}


def _timestamp(seconds: float, point: str) -> str:
    thousandths = max(0, round(seconds * 1000))
    minutes, rest = divmod(thousandths, 60_000)
    return f"{minutes // 60:02}:{minutes % 60:02}:{rest // 1000:02}{point}{rest % 1000:03}"
