"""The terminal while `lemonbus top` runs: its screen, its keyboard, its size. It is restored in every end."""

from __future__ import annotations

import contextlib
import os
import re
import select
import signal
import sys
import termios
import tty
from types import FrameType
from typing import Final, Self

from gateway.cli.live.layout import Line, Style

_KEYS: Final = {
    "A": "up",
    "B": "down",
    "H": "home",
    "F": "end",
    "1~": "home",
    "4~": "end",
    "5~": "page up",
    "6~": "page down",
}
"""Ends of the sequences that a terminal sends for keys without a character."""
_SEQUENCE: Final = re.compile(r"\x1b[\[O]([0-9;]*[A-Za-z~])")
_BEGUN: Final = re.compile(r"\x1b(?:[\[O][0-9;]*)?\Z")
"""A sequence whose end has not come yet."""
_ENTER: Final = "\x1b[?1049h\x1b[?25l\x1b[2J"
"""Another screen, without a cursor."""
_LEAVE: Final = "\x1b[?25h\x1b[?1049l"
_STYLES: Final = {
    Style.NORMAL: "",
    Style.BOLD: "1",
    Style.DIM: "2",
    Style.REVERSE: "7",
    Style.GOOD: "32",
    Style.BAD: "31",
}
_WITHOUT_COLOURS: Final = {**_STYLES, Style.GOOD: "", Style.BAD: "1"}
_ENDING: Final = (signal.SIGTERM, signal.SIGHUP)
_SIGNALS: Final = (*_ENDING, signal.SIGWINCH, signal.SIGTSTP)


class TerminalScreen:
    """The screen and the keyboard, as a context. Ctrl-C still raises ``KeyboardInterrupt``, and Ctrl-Z stops the process."""

    def __init__(self) -> None:
        """Use standard input and standard output, which must be a terminal."""
        self._input, self._output = sys.stdin.fileno(), sys.stdout.fileno()
        self._styles = _WITHOUT_COLOURS if os.environ.get("NO_COLOR") else _STYLES
        self._unread = ""
        self._drawn = ""
        self._must_stop = False
        self._usual_mode = termios.tcgetattr(self._input)
        self._reader, self._writer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)

    def __enter__(self) -> Self:
        """Take over the terminal."""
        self._former = {number: signal.getsignal(number) for number in _SIGNALS}
        for number in _SIGNALS:
            signal.signal(number, self._on_signal)
        self._take()
        return self

    def __exit__(self, *_: object) -> None:
        """Give the terminal back as it was."""
        self._give_back()
        for number, handler in self._former.items():
            signal.signal(number, handler)

    def _take(self) -> None:
        tty.setcbreak(self._input, termios.TCSANOW)
        self._drawn = ""
        self._write(_ENTER)

    def _give_back(self) -> None:
        with contextlib.suppress(OSError, termios.error):  # it may have gone
            termios.tcsetattr(self._input, termios.TCSANOW, self._usual_mode)
            termios.tcflow(self._input, termios.TCOON)  # if Ctrl-S has stopped it, nothing could be written
            self._write(_LEAVE)

    def _on_signal(self, number: int, _frame: FrameType | None) -> None:
        if number in _ENDING:
            sys.exit(128 + number)
        self._must_stop |= number == signal.SIGTSTP
        self.wake()

    def _stop(self) -> None:
        """Stop this process, as Ctrl-Z asks; returns when the shell continues it."""
        self._must_stop = False
        self._give_back()
        signal.raise_signal(signal.SIGSTOP)
        self._take()

    def wake(self) -> None:
        """End a call of :meth:`wait`, from any thread or signal handler."""
        with contextlib.suppress(BlockingIOError):  # it is woken already
            os.write(self._writer, b"\0")

    def wait(self, seconds: float) -> list[str]:
        """Return the keys that were pressed: characters, or names such as ``page up``. Raises ``EOFError`` without a terminal."""
        ready, _, _ = select.select([self._input, self._reader], [], [], seconds)
        if self._must_stop:
            self._stop()
        if self._reader in ready:
            os.read(self._reader, 4096)
        if self._input not in ready:
            return []
        try:
            typed = os.read(self._input, 4096)
        except OSError:
            typed = b""
        if not typed:
            raise EOFError
        keys, self._unread = parse_keys(self._unread + typed.decode("utf-8", "replace"))
        return keys

    @property
    def size(self) -> tuple[int, int]:
        """Its columns and lines; those of a usual one if it does not know them."""
        columns, lines = os.get_terminal_size(self._output)
        return columns or 80, lines or 24

    def draw(self, lines: list[Line]) -> None:
        """Show these lines, and nothing else."""
        # Each line is cleared before it is written: in the last column, some terminals would clear what was just written.
        text = "\x1b[H" + "\r\n".join(f"\x1b[2K{''.join(map(self._styled, line))}" for line in lines) + "\x1b[J"
        if text != self._drawn:
            self._write(text)
            self._drawn = text

    def _styled(self, part: tuple[str, Style]) -> str:
        text, style = part
        codes = self._styles[style]
        return f"\x1b[{codes}m{text}\x1b[0m" if codes else text

    def _write(self, text: str) -> None:
        left = memoryview(text.encode(sys.stdout.encoding, "replace"))
        while left:  # without a buffer, because a signal may end a write
            left = left[os.write(self._output, left) :]


def parse_keys(text: str) -> tuple[list[str], str]:
    """Return the keys in what a terminal has sent, and the beginning of an incomplete one."""
    begun = _BEGUN.search(text)
    rest = begun[0] if begun else ""
    text = text.removesuffix(rest)
    keys = []
    while text:
        found = _SEQUENCE.match(text)
        if found:
            keys.append(_KEYS.get(found[1], ""))
            text = text[found.end() :]
        else:
            keys.append(text[0])
            text = text[1:]
    return [key for key in keys if key], rest
