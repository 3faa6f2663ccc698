"""Cuts a request with a long list into pieces, and joins their answers. Pure.

An engine begins all entries of a list before it looks at any later request. So it gets a list in pieces, each of which
waits its turn, and requests of other clients come in between. The joined answer is what the engine would have answered
to the whole list.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from protocol.failures import DECODE_ERRORS, invalid, not_understood
from protocol.requests.text_limits import begins_with_number, first_byte
from protocol.wire.openai_chunks import payloads

MIN_ENTRIES: Final = 16
"""Completions, inputs or documents of the first piece.

Fewer would leave slots of an engine idle while the last one ends.
"""
MIN_BYTES: Final = 16 * 1024
"""Bytes of the list's JSON in the first piece, unless it has one entry."""
MAX_GROWTH: Final = 32.0
"""How many times as large the largest piece may be."""
MAX_GROWTH_AT_ONCE: Final = 4.0
MAX_REPEATED_BYTES: Final = 1024 * 1024
"""JSON of the other fields of a request that is cut into pieces; each piece repeats them. They may be as long as all fields that engines know together."""
TARGET_S: Final = 0.25
"""Seconds that the engine should work on a piece: another request may have to wait this long. docs/performance.md says what that costs."""

_LISTS: Final[dict[str, tuple[str, ...]]] = {
    "completions": ("prompt",),
    "completion": ("prompt",),
    "embeddings": ("input",),
    "embedding": ("input", "content"),
    "rerank": ("documents",),
}
"""Endpoint → fields of a request that may have the list. The first one present has it."""
_ANSWERS: Final = {"completions": "choices", "embeddings": "data", "rerank": "results"}
"""Endpoint → the field of an answer with its entries. Other answers are lists of entries."""
_PROMPT_SCORES: Final = "prompt_logprobs"
"""The field with an entry for each prompt, in answers of engines that score prompts themselves."""
_ENTRY_STARTS: Final = (b'"', b"[", b"{")
_NO_LIST: Final = msgspec.Raw(b"null")
_ABSENT: Final = (None, _NO_LIST)

Fields = dict[str, msgspec.Raw]
_fields: Final = msgspec.json.Decoder(Fields).decode
_several: Final = msgspec.json.Decoder(list[Fields]).decode
_list: Final = msgspec.json.Decoder(list[msgspec.Raw]).decode
_number: Final = msgspec.json.Decoder(int).decode
_any: Final = msgspec.json.decode
_encode: Final = msgspec.json.encode


class Piece(msgspec.Struct, frozen=True):
    """A part of a request, which is itself a request."""

    body: bytes
    weight: int
    first: int = 0
    """The number of completions, inputs or documents before it."""


class ListPieces:
    """Cuts one request. A fast engine gets large pieces, because it is idle for some milliseconds between pieces."""

    _fields: Fields
    _name: str
    """The field with the list."""
    _entries: list[msgspec.Raw]
    _each_weight: int
    _repeated: int
    """Bytes of the other fields."""

    def __init__(self, endpoint: str, body: bytes, weight: int) -> None:
        """``weight``: the entries of the list, counted once for each of their completions."""
        self.left = False
        """Whether there are more pieces after those that were taken."""
        self._whole = Piece(body, weight)
        if weight > MIN_ENTRIES or (weight > 1 and len(body) > MIN_BYTES):
            self._read(endpoint, body, weight)

    def _read(self, endpoint: str, body: bytes, weight: int) -> None:
        """Find the list. A list with a token number in it is one prompt."""
        if endpoint not in _LISTS:
            return
        fields = _fields(body)
        name = next((each for each in _LISTS[endpoint] if fields.get(each) not in _ABSENT), "")
        raw = fields.get(name, _NO_LIST)
        entries = _list(raw) if first_byte(raw) == b"[" and not begins_with_number(raw) else []
        if len(entries) > 1 and all(first_byte(each) in _ENTRY_STARTS for each in entries):
            self.left = True
            self._fields, self._name, self._entries = fields, name, entries
            self._repeated = len(body) - memoryview(raw).nbytes
            self._each_weight = max(1, weight // len(entries))
            self._growth, self._next = 1.0, 0

    def first(self) -> Piece:
        """Return the first piece, usually the request itself.

        Raises ``invalid_request`` if there are more, and the other fields are too large to be sent with each of them.
        """
        piece = self._cut() if self.left else self._whole
        if self.left and self._repeated > MAX_REPEATED_BYTES:
            size = f"{self._repeated} bytes; beside so long a `{self._name}`, the limit is {MAX_REPEATED_BYTES}"
            raise invalid(f"the request's other fields have {size}", self._name)
        return piece

    def following(self, seconds: float) -> Piece:
        """Return the next piece. ``seconds``: how long the engine worked on the one before."""
        change = min(MAX_GROWTH_AT_ONCE, TARGET_S / max(seconds, 0.001))
        self._growth = min(MAX_GROWTH, max(1.0, self._growth * change))
        return self._cut()

    def _cut(self) -> Piece:
        most = max(1, int(MIN_ENTRIES * self._growth) // self._each_weight)
        budget = MIN_BYTES * self._growth
        begin = end = self._next
        size = 0
        while end < len(self._entries) and end - begin < most:
            size += memoryview(self._entries[end]).nbytes
            if size > budget and end > begin:
                break
            end += 1
        self._next = end
        self.left = end < len(self._entries)
        body = _encode({**self._fields, self._name: self._entries[begin:end]})
        return Piece(body, (end - begin) * self._each_weight, begin * self._each_weight)


def joined_answer(endpoint: str, body: bytes, answers: Sequence[tuple[int, bytes]]) -> bytes:
    """Return the answer to the whole request ``body``, joined from the answers to its pieces, each with its ``first``.

    Raises ``backend_error`` for an answer that does not have the engine's form.
    """
    try:
        name = _ANSWERS.get(endpoint)
        if name is None:
            return _encode([_moved(entry, first) for first, answer in answers for entry in _listed(answer)])
        documents = [_fields(answer) for _, answer in answers]
        pairs = zip(documents, answers, strict=True)
        entries = [_moved(entry, first) for document, (first, _) in pairs for entry in _several(document[name])]
        if endpoint == "rerank":
            entries = _best(entries, _fields(body).get("top_n"))
        whole: dict[str, Any] = {**documents[0], name: entries}
        usages = [_any(document["usage"]) for document in documents if "usage" in document]
        if usages:
            whole["usage"] = _total(usages)
        if _PROMPT_SCORES in whole:
            whole[_PROMPT_SCORES] = [each for document in documents for each in _list(document[_PROMPT_SCORES])]
        return _encode(whole)
    except (LookupError, TypeError, AttributeError, *DECODE_ERRORS) as problem:
        raise not_understood(problem) from None


def _listed(answer: bytes) -> list[Fields]:
    return _several(answer) if answer[:1] == b"[" else [_fields(answer)]


def _moved(entry: Fields, first: int) -> Fields:
    return {**entry, "index": msgspec.Raw(b"%d" % (_number(entry["index"]) + first))}


def _best(entries: list[Fields], top: msgspec.Raw | None) -> list[Fields]:
    ordered = sorted(entries, key=lambda entry: -float(_any(entry["relevance_score"])))
    return ordered if top in _ABSENT or top is None else ordered[: _number(top)]


def _total(usages: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the sum of token counts, including those in objects."""
    total: dict[str, Any] = dict(usages[0])
    for usage in usages[1:]:
        for name, value in usage.items():
            if isinstance(value, dict):
                total[name] = _total([total.get(name) or {}, value])
            elif type(value) is int:
                total[name] = (total.get(name) or 0) + value
    return total


class PieceEvents:
    """The events of a streamed answer to a request that was cut, as if one engine had answered all of it."""

    def __init__(self, endpoint: str) -> None:
        """Begin with the first piece."""
        self._native = endpoint not in _ANSWERS
        self._id: msgspec.Raw | None = None
        self._usages: list[Mapping[str, Any]] = []

    def events(self, events: bytes, first: int, last: bool) -> bytes:
        """Return the translation of events of the piece with this ``first``, maybe nothing.

        ``last``: it is the last piece.

        Raises ``DECODE_ERRORS`` for malformed events.
        """
        return b"".join([self._event(_fields(payload), first, last) for payload in payloads(events)])

    def _event(self, fields: Fields, first: int, last: bool) -> bytes:
        if self._native:
            fields = _moved(fields, first) if "index" in fields else fields
        elif "choices" in fields:
            self._id = self._id or fields.get("id")
            if self._id is not None:
                fields["id"] = self._id
            choices = _several(fields["choices"])
            usage = fields.get("usage")
            if not choices and usage not in _ABSENT and usage is not None:
                self._usages.append(_any(usage))
                if not last:
                    return b""
                fields["usage"] = msgspec.Raw(_encode(_total(self._usages)))
            fields["choices"] = msgspec.Raw(_encode([_moved(choice, first) for choice in choices]))
        return b"data: %b\n\n" % _encode(fields)
