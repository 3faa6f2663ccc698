"""Images and recordings of a request: engines get only those that were decoded, or measured, within limits.

All inference requests pass through here, whatever their API family, in the form that engines get. Unknown parts of a
message are refused: engines know more kinds of media, which they pass to programs of the machine, or fetch.
"""

from __future__ import annotations

import binascii
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, NamedTuple

import gevent
import msgspec

from gateway.decoding import decoder_process
from gateway.decoding.base64_text import from_base64
from gateway.decoding.decoder_process import AbandonedError, Budget, DecoderSession, RefusedError
from gateway.decoding.limits import MAX_CHAT_AUDIO_S, MAX_MEDIA, MAX_PIXELS
from gateway.http.bodies import body_decoding, body_limits
from gateway.http.client_disconnect import CLIENT_LEFT, HangUpWatch
from gateway.http.request_context import client_of
from gateway.requests.inference_request import InferenceRequest
from gateway.requests.request_session import RequestSession, reserve
from protocol.failures import DECODE_ERRORS, Code, Failure, invalid
from protocol.requests.text_limits import RequestFields
from protocol.wire import form_data
from protocol.wire.audio_format import MAX_RECORDING_S, MEASURED, NAMES, recording_type

IMAGE, MASKED_IMAGE, RECORDING = range(3)
_ORDERS: Final = {
    IMAGE: decoder_process.IMAGE,
    MASKED_IMAGE: decoder_process.IMAGE_WITH_ALPHA,
    RECORDING: decoder_process.RECORDING,
}
_WORDS: Final = {IMAGE: "image", MASKED_IMAGE: "image", RECORDING: "recording"}
_HEADER_BYTES: Final = 100
_START: Final = 48
"""Characters of base64 that tell an image from a recording."""


class Medium(NamedTuple):
    """An image or a recording of a request."""

    what: int
    field: str
    data: bytes | str
    """A text is base64."""
    put: Callable[[str, bytes], None]
    """Puts the decoded file into the request: its type, and its bytes or their base64."""


class _PlainMessage(msgspec.Struct):
    content: str | None = None


_plain_messages: Final = msgspec.json.Decoder(list[_PlainMessage]).decode
_messages: Final = msgspec.json.Decoder(list[dict[str, Any]]).decode


def with_decoded_media(
    session: RequestSession, env: dict[str, Any], request: InferenceRequest, fields: RequestFields | None
) -> InferenceRequest:
    """Return the request with its media made safe for an engine. ``env`` is ``req.env``.

    ``fields``: those of the JSON object in its body, None if it is not one.
    Raises ``invalid_request`` for refused media, ``cancelled`` if the client hangs up, ``overloaded``, and whatever the
    reservation raises: nothing is decoded for a request that would be refused.
    """
    read = _READERS.get(request.endpoint)
    if read is None:
        return request
    found = read(request.body, fields)
    if found is None:
        return request
    media, body = found
    if not media:
        return request
    body_decoding.pause(len(request.body))
    if len(media) > MAX_MEDIA:
        raise invalid(f"the request has {len(media)} images and recordings; the limit is {MAX_MEDIA}", media[-1].field)
    reserve(session, env, request.endpoint, request.model, request.reserved_tokens)
    # What was within the limit stays so with a header of its own.
    size = max(session.settings.body_limit, sum(len(medium.data) for medium in media)) + _HEADER_BYTES * len(media)
    max_seconds = MAX_RECORDING_S if request.endpoint in _FORMS else MAX_CHAT_AUDIO_S
    _decode(env, media, request, max_seconds, size)
    made = body()
    body_limits.count(env, max(0, len(made) - len(request.body)))
    return msgspec.structs.replace(request, body=made)


def _decode(env: dict[str, Any], media: list[Medium], request: InferenceRequest, max_seconds: float, size: int) -> None:
    left = {IMAGE: float(MAX_PIXELS), RECORDING: max_seconds}
    session = DecoderSession(client_of(env))
    watch = HangUpWatch(env, session.abandon)
    try:
        for number, medium in enumerate(media, 1):
            budget = RECORDING if medium.what == RECORDING else IMAGE
            try:
                decoded = session.decode(_ORDERS[medium.what], Budget(left[budget], size), medium.data)
            except RefusedError as refusal:
                field = _shown(medium.field, request.names)
                which = f"{_WORDS[medium.what]} {number} of {len(media)}: " if len(media) > 1 else ""
                raise invalid(f"`{field}`: {which}{refusal}", field) from None
            left[budget] -= decoded.cost
            size = max(0, size - len(decoded.data))
            medium.put(decoded.kind, decoded.data)
    except AbandonedError:
        raise Failure(Code.CANCELLED, CLIENT_LEFT).raised() from None
    finally:
        watch.close()


def _shown(field: str, names: Mapping[str, str]) -> str:
    """Return the field's name in the client's API: its position is known only if its request was not translated."""
    first = re.split(r"[.\[]", field, maxsplit=1)[0]
    return names.get(first, first) if names else field


Found = tuple[list[Medium], Callable[[], bytes]] | None
"""The media of a body, and the function that rewrites it; None if it has none."""
_Reader = Callable[[bytes, RequestFields | None], Found]


def _chat(_body: bytes, given: RequestFields | None) -> Found:
    """Read the parts of all messages, whatever their role."""
    fields = _object(given)
    raw = fields.get("messages")
    if raw is None or _are_plain(raw):
        return None
    try:
        messages = _messages(raw)
    except DECODE_ERRORS:
        raise invalid("`messages` must be a list of objects", "messages") from None
    media = [
        medium for place, message in enumerate(messages) for medium in _parts(message, f"messages[{place}].content")
    ]
    return media, lambda: msgspec.json.encode({**fields, "messages": messages})


def _are_plain(messages: msgspec.Raw) -> bool:
    """Return whether these are messages, and nothing in them is a list of parts; so are most."""
    try:
        _plain_messages(messages)
    except DECODE_ERRORS:
        return False
    return True


def _parts(message: dict[str, Any], where: str) -> Iterator[Medium]:
    content = message.get("content")
    if content is None or isinstance(content, str):
        return
    if not isinstance(content, list):
        raise invalid(f"`{where}` must be a text or a list of parts", where)
    for index, part in enumerate(content):
        field = f"{where}[{index}]"
        kind = part.get("type") if isinstance(part, dict) else None
        if kind == "image_url":
            yield _image(part, f"{field}.image_url")
        elif kind == "input_audio":
            yield _audio(part, f"{field}.input_audio")
        elif kind in ("input_video", "video_url", "video"):
            raise invalid(f"`{field}`: videos are not served here: send single pictures of it as images", field)
        elif kind not in ("text", "refusal"):
            raise invalid(f"`{field}`: a part must have the type text, image_url or input_audio", field)


def _image(part: dict[str, Any], field: str) -> Medium:
    given = part["image_url"] if isinstance(part.get("image_url"), dict) else {"url": part.get("image_url")}
    url = given.get("url")
    if not isinstance(url, str):
        raise invalid(f"`{field}` needs a `url`: data:image/png;base64,…", field)
    head, comma, coded = url.partition(",")
    if not comma or head[:5].lower() != "data:" or not head.lower().endswith(";base64"):
        raise invalid(f"`{field}`: send the image as a data URL with base64 (data:image/png;base64,…)", field)

    def put(kind: str, data: bytes) -> None:
        detail = {"detail": given["detail"]} if isinstance(given.get("detail"), str) else {}
        part.clear()
        part.update(type="image_url", image_url={"url": f"data:{kind};base64,{data.decode()}", **detail})

    return Medium(IMAGE, field, coded, put)


def _audio(part: dict[str, Any], field: str) -> Medium:
    given = part.get("input_audio")
    coded = given.get("data") if isinstance(given, dict) else None
    if not isinstance(coded, str):
        raise invalid(f"`{field}` needs `data`, a recording in base64", field)
    if coded[:5].lower() == "data:":
        coded = coded.partition(",")[2]

    def put(kind: str, data: bytes) -> None:
        part.clear()
        # Engines look at the bytes, and allow two words here.
        part.update(
            type="input_audio", input_audio={"data": data.decode(), "format": "mp3" if kind == "mp3" else "wav"}
        )

    return Medium(RECORDING, field, coded, put)


def _prompts(*names: str) -> _Reader:
    """Return the reader for prompts of llama.cpp's own form in these fields: objects may have ``multimodal_data``."""

    def read(_body: bytes, given: RequestFields | None) -> Found:
        fields = _object(given)
        prompts = {
            name: msgspec.json.decode(fields[name]) for name in names if name in fields and b"{" in bytes(fields[name])
        }
        media = [medium for name, prompt in prompts.items() for medium in _prompt_media(prompt, name)]
        return media, lambda: msgspec.json.encode({**fields, **prompts})

    return read


def _prompt_media(prompt: Any, field: str) -> Iterator[Medium]:
    if isinstance(prompt, list):
        for index, each in enumerate(prompt):
            if isinstance(each, list) and not all(isinstance(item, int | str) for item in each):
                raise invalid(f"`{field}[{index}]` may have only token numbers and texts in it", f"{field}[{index}]")
            yield from _prompt_media(each, f"{field}[{index}]")
    entries = prompt.get("multimodal_data") if isinstance(prompt, dict) else None
    if entries is None:
        return
    where = f"{field}.multimodal_data"
    if not isinstance(entries, list) or not all(isinstance(entry, str) for entry in entries):
        raise invalid(f"`{where}` must be a list of images or recordings in base64", where)
    for index, entry in enumerate(entries):

        def put(_kind: str, decoded: bytes, index: int = index) -> None:
            entries[index] = decoded.decode()

        yield Medium(_kind_of(entry), f"{where}[{index}]", entry, put)


def _kind_of(coded: str) -> int:
    try:
        start = from_base64("".join(coded[: 2 * _START].split())[:_START].encode("ascii", "replace"))
    except binascii.Error:
        return IMAGE  # the decoder says what is wrong with it
    return RECORDING if recording_type(start) in ("riff", *MEASURED) else IMAGE


def _form(what: int, *names: str) -> _Reader:
    """Return the reader for the files of a form."""

    def read(body: bytes, _given: RequestFields | None) -> Found:
        try:
            parts = form_data.parse(form_data.boundary_from_body(body), body, lambda: gevent.sleep(0))
        except ValueError as problem:
            raise invalid(f"the request is not a form: {problem}") from None
        media = []
        for index, part in enumerate(parts):
            if part.name not in names:
                continue
            if what == RECORDING and not _is_measured(part.data, part.name):
                continue

            def put(kind: str, data: bytes, index: int = index) -> None:
                suffix = kind.rpartition("/")[2]
                parts[index] = parts[index]._replace(data=data, filename=f"{parts[index].name}.{suffix}")

            media.append(Medium(what, part.name, part.data, put))
        return media, lambda: form_data.encode(parts)

    return read


def _is_measured(data: bytes, field: str) -> bool:
    """Return whether the length of a recording can be found here; refuse a file that is not a recording."""
    kind = recording_type(data)
    if not kind:
        raise invalid(f"`{field}` is not a recording that can be read here: send {NAMES}", field)
    return kind in MEASURED


def _object(fields: RequestFields | None) -> RequestFields:
    if fields is None:
        raise Failure(Code.INVALID_JSON, "the request is not a JSON object").raised()
    return fields


_FORMS: Final = frozenset({"images/edits", "audio/transcriptions", "audio/translations"})
_READERS: Final[dict[str, _Reader]] = {
    **dict.fromkeys(["chat/completions", "chat/completions/input_tokens", "apply-template"], _chat),
    **dict.fromkeys(["completions", "completion", "infill"], _prompts("prompt")),
    **dict.fromkeys(["embeddings", "embedding"], _prompts("input", "content")),
    "images/edits": _form(MASKED_IMAGE, "image", "mask"),
    **dict.fromkeys(["audio/transcriptions", "audio/translations"], _form(RECORDING, "file")),
}
"""Endpoint → what finds its media. The other endpoints have none: their fields are texts and numbers."""
