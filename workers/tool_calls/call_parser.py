"""Finds tool calls in the text of an answer that comes in pieces. Pure.

Invariants:

* However the text is cut into pieces, the calls and the text around them are the same.
* No part of a marker is returned as text before it is certain that it is not a marker.
* A text that only looks like a call stays text: it is not JSON, its name is not that of a tool in the request, or it is
  cut off before its arguments begin.
* White space next to a call belongs to the call, unless it is longer than :data:`MAX_SPACE`.
* The work grows only with the length of the answer, whatever it contains.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection
from functools import partial
from typing import Final, NamedTuple

from workers.tool_calls.call_object import CallObject, NotACallError
from workers.tool_calls.formats import ToolCallFormat

_BETWEEN_BARE_CALLS: Final = ";,"
NO_LIMIT: Final = 2**31
MAX_SPACE: Final = 4_096
"""Characters of white space that are kept back, because a call may follow, and looked at again with each one more."""


class TextPiece(NamedTuple):
    """A piece of the text around the calls."""

    text: str


class CallStart(NamedTuple):
    """A call begins; ``number`` counts the calls of the answer."""

    number: int
    id: str
    name: str


class CallArguments(NamedTuple):
    """A piece of the arguments of a call, which are JSON."""

    number: int
    text: str


CallEvent = TextPiece | CallStart | CallArguments


class ToolCallParser:
    """Parses one answer."""

    def __init__(
        self, form: ToolCallFormat, names: Collection[str], new_id: Callable[[], str], most: int = NO_LIMIT
    ) -> None:
        """``names`` of the tools. ``new_id`` makes the id of a call. After ``most`` calls, the rest is left out."""
        self._form, self._names, self._new_id, self._most = form, names, new_id, most
        self._queue: deque[str] = deque()
        """Characters to be read. Those that were mistaken for a call come back to the front."""
        self._events: list[CallEvent] = []
        self._text = ""
        """Text that may begin a marker, or white space before one."""
        self._step: Callable[[str], None] = self._in_text
        self._raw: list[str] = []
        """Characters since an opener, which become text again if they are not a call."""
        self._in_list = self._text_began = False
        self._after_call = False
        """Whether only white space has come since a call."""
        self._is_bare = False
        self.calls = 0
        """Calls that have begun."""
        self.complete = False
        """Whether the largest allowed number of calls have ended."""

    def feed(self, text: str) -> list[CallEvent]:
        """Take the next piece of the answer."""
        self._queue.extend(text)
        self._read_queue()
        return self._take_events()

    def finish(self) -> list[CallEvent]:
        """Take the end of the answer: what was held back is now text, except for the beginning of a closer."""
        while self._raw and self._step != self._before_closer:
            self._give_up()
            self._read_queue()
        self._send_text(self._text)
        self._text = ""
        return self._take_events()

    def _take_events(self) -> list[CallEvent]:
        events, self._events = self._events, []
        return events

    def _read_queue(self) -> None:
        while self._queue and not self.complete:
            self._step(self._queue.popleft())

    # Text, up to an opener.

    def _in_text(self, character: str) -> None:
        if self._begins_bare_call(character):
            self._is_bare = True
            self._begin_region("")
            self._queue.appendleft(character)
            return
        self._text += character
        opener = next((each for each in self._form.openers if self._text.endswith(each)), "")
        if opener:
            before, self._text = self._text[: -len(opener)], ""
            self._is_bare = False
            if before.strip():
                self._send_text(before.rstrip())
                before = before[len(before.rstrip()) :]
            self._begin_region(before + opener)
            return
        keep = self._uncertain_length()
        if keep < len(self._text):
            self._send_text(self._text[: len(self._text) - keep])
            self._text = self._text[len(self._text) - keep :]

    def _begins_bare_call(self, character: str) -> bool:
        if character != "{" or not self._form.bare or self._text_began:
            return False
        return not self._text.strip() or self._between_bare_calls(self._text)

    def _uncertain_length(self) -> int:
        """Return how many characters at the end may precede a call, or belong to an opener."""
        text = self._text
        overlap = max(_overlap(text, opener) for opener in self._form.openers)
        certain = text[: len(text) - overlap] if overlap else text
        space = len(certain) - len(certain.rstrip())
        if max(space, len(text) - overlap) > MAX_SPACE:
            return overlap
        if self._between_bare_calls(certain):
            return len(text)
        return overlap + space

    def _between_bare_calls(self, text: str) -> bool:
        return self._form.bare and self._after_call and text.strip() in ("", *_BETWEEN_BARE_CALLS)

    def _send_text(self, text: str) -> None:
        if self._after_call:
            text = text.lstrip()
        if not text:
            return
        if text.strip():
            self._text_began, self._after_call = True, False
        last = self._events[-1] if self._events else None
        if isinstance(last, TextPiece):
            self._events[-1] = TextPiece(last.text + text)
        else:
            self._events.append(TextPiece(text))

    # From an opener to the end of its calls.

    def _begin_region(self, opener: str) -> None:
        self._raw = [self._text + opener]
        self._text = ""
        self._in_list = False
        self._step = self._before_object

    def _before_object(self, character: str) -> None:
        self._raw.append(character)
        if character == "{":
            call = CallObject(self._names, needs_arguments=self._is_bare)
            call.feed(character)
            self._step = partial(self._in_object, call)
        elif character == "[" and self._form.listed and not self._in_list:
            self._in_list = True
        elif not character.isspace():
            self._give_up()

    def _in_object(self, call: CallObject, character: str) -> None:
        announced = call.is_call
        if not announced:
            self._raw.append(character)
        try:
            call.feed(character)
        except NotACallError:
            if announced:
                self._leave(character)
            else:
                self._give_up()
            return
        if call.is_call and not announced:
            self._events.append(CallStart(self.calls, self._new_id(), call.name))
            self.calls += 1
            self._raw = []
        if call.is_call and (arguments := call.take_arguments()):
            self._send_arguments(arguments)
        if call.ended:
            self._after_call, self._text_began = True, False
            self.complete = self.calls >= self._most
            self._step = self._between_items if self._in_list else self._before_closer

    def _send_arguments(self, text: str) -> None:
        last = self._events[-1] if self._events else None
        if isinstance(last, CallArguments):
            self._events[-1] = last._replace(text=last.text + text)
        else:
            self._events.append(CallArguments(self.calls - 1, text))

    def _between_items(self, character: str) -> None:
        if character == ",":
            self._raw = [","]
            self._step = self._before_object
        elif character == "]":
            self._step = self._before_closer
        elif not character.isspace():
            self._leave(character)

    def _before_closer(self, character: str) -> None:
        """Skip the closer, which a model may also leave out."""
        text = "".join([*self._raw, character])
        self._raw = []
        marker, closer = text.lstrip(), self._form.closer
        if (marker and not closer.startswith(marker)) or len(text) - len(marker) > MAX_SPACE:
            self._leave(text)
        elif marker == closer:
            self._leave("")
        else:
            self._raw = [text]

    def _leave(self, text: str) -> None:
        """End the calls of an opener. ``text`` came after them."""
        self._raw = []
        self._step = self._in_text
        self._queue.extendleft(reversed(text))

    def _give_up(self) -> None:
        """Turn the characters that are not a call into text. Beyond the first character, they may contain an opener."""
        raw = "".join(self._raw)
        self._raw = []
        self._step = self._in_text
        start = len(raw) - len(raw.lstrip())
        first = next((each for each in self._form.openers if raw.startswith(each, start)), raw[start : start + 1])
        self._send_text(raw[: start + len(first)])
        self._queue.extendleft(reversed(raw[start + len(first) :]))


def _overlap(text: str, word: str) -> int:
    """Return how many characters at the end of a text may begin a word."""
    longest = min(len(text), len(word) - 1)
    return next((size for size in range(longest, 0, -1) if text.endswith(word[:size])), 0)
