"""Log records as JSON objects of bounded size, and the counter of dropped ones."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from protocol.runtime.control_characters import escape_in_json

MAX_LINE_BYTES: Final = 4096
MAX_RECORD_BYTES: Final = MAX_LINE_BYTES - 32
"""The rest of the line holds a newline and a ``dropped`` count."""
CUT_MARK: Final = "…[cut]"
_FIRST: Final = ("ts", "level", "process", "pid", "event", "model", "worker", "request_id")


class DropCounter:
    """A sink in front of something that may be full.

    It counts refused records, and the next record says how many there were.
    """

    def __init__(self, send: Callable[[bytes], bool]) -> None:
        """``send`` returns whether it took the record; it neither blocks nor raises."""
        self._send = send
        self._unreported = 0
        self.dropped = 0
        """Records lost so far."""

    def __call__(self, record: bytes, count: int = 1) -> None:
        """Send a record (or ``count`` records in one piece), or count it as dropped."""
        if self._send(with_dropped(record, self._unreported) if self._unreported else record):
            self._unreported = 0
        else:
            self._unreported += count
            self.dropped += count


def with_dropped(record: bytes, lost: int) -> bytes:
    """Return the JSON object, which a priority may precede; if records were lost, ``"dropped": lost`` comes first in it."""
    start = record.index(b"{") + 1
    return record[:start] + b'"dropped":%d,' % lost + record[start:] if lost else record


def fit_record(record: Mapping[str, Any]) -> tuple[Mapping[str, Any], bytes]:
    """Return the record and its JSON object of at most ``MAX_RECORD_BYTES`` bytes: long fields are cut and marked."""
    line = _encoded(record)
    limit = MAX_LINE_BYTES // 2
    while len(line) > MAX_RECORD_BYTES:
        if limit >= 16:
            record = {key: _cut(key, value, limit) for key, value in record.items()}
            limit //= 2
        else:
            record = {key: record[key] for key in _FIRST if key in record} | {"cut": f"{len(record)} fields"}
        line = _encoded(record)
    return record, line


def _cut(key: str, value: Any, limit: int) -> Any:
    if value is None or isinstance(value, float) or (isinstance(value, int) and abs(value) < 2**63):
        return value
    text = value if isinstance(value, str) else _encoded(value).decode()
    if len(text) <= limit:
        return value
    # The end of a traceback says what happened.
    return CUT_MARK + text[-limit:] if key == "exception" else text[:limit] + CUT_MARK


def _shown(value: object) -> str:
    try:
        return repr(value)
    except Exception:  # noqa: BLE001 - a log line must not fail because of what it shows
        return f"<{type(value).__name__}>"


_encode = msgspec.json.Encoder(enc_hook=_shown).encode


def _encoded(value: Any) -> bytes:
    return escape_in_json(_encoded_as_it_is(value))


def _encoded_as_it_is(value: Any) -> bytes:
    try:
        return _encode(value)
    except Exception:  # noqa: BLE001 - lone surrogates, huge integers, deep nesting, strange keys
        if isinstance(value, Mapping):
            return _encode({str(key).encode("utf-8", "replace").decode(): _plain(each) for key, each in value.items()})
        return _encode(_plain(value))


def _plain(value: Any) -> Any:
    if value is None or isinstance(value, bool | float):
        return value
    text = value if isinstance(value, str) else _shown(value)
    return text.encode("utf-8", "replace").decode()
