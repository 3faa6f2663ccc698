"""What a person types in a conversation: lines with editing and a history that is kept, pasted text, and messages of several lines."""

from __future__ import annotations

import contextlib
import json
import os
from pathlib import Path
from typing import Final

MARK: Final = '"""'
"""Begins and ends a message of several lines."""
PROMPT: Final = ">>> "
MORE_PROMPT: Final = "... "
KEPT_MESSAGES: Final = 1000
"""How many messages of earlier conversations can be recalled."""


class LineEditor:
    """Reads messages with readline. Pasted text is one message, whatever lines it has."""

    def __init__(self, history: Path) -> None:
        """Edit lines, with the messages in the file ``history``, one JSON string a line, which only this user may read."""
        import readline  # noqa: PLC0415 - no other command needs it, and it changes how input() works

        self._history = history
        readline.set_auto_history(False)  # a message of several lines is one entry
        # A terminal that marks what is pasted: its line ends do not end the message.
        readline.parse_and_bind("set enable-bracketed-paste on")
        self._remember = readline.add_history
        for message in self._former():
            readline.add_history(message)

    def read(self) -> str:
        """Return the next message; raises ``EOFError`` for Ctrl-D, ``KeyboardInterrupt`` for Ctrl-C."""
        text = input(PROMPT).strip()
        if text.startswith(MARK):
            text = self._to_mark(text.removeprefix(MARK))
        if text:
            self._remember(text)
            self._keep(text)
        return text

    def _to_mark(self, text: str) -> str:
        while not text.rstrip().endswith(MARK):
            text += "\n" + input(MORE_PROMPT)
        return text.rstrip().removesuffix(MARK).strip("\n")

    def _former(self) -> list[str]:
        """Return the last messages of the file. A line that is not whole, because the disk was full, is left out."""
        found: list[str] = []
        with contextlib.suppress(OSError, UnicodeDecodeError):
            lines = self._history.read_text("utf-8").splitlines()
            for line in lines[-KEPT_MESSAGES:]:
                with contextlib.suppress(ValueError):
                    message = json.loads(line)
                    found += [message] if isinstance(message, str) else []
            if len(lines) > 2 * KEPT_MESSAGES:
                self._rewrite(found)
        return found

    def _rewrite(self, messages: list[str]) -> None:
        shorter = self._history.with_name(f"{self._history.name}.{os.getpid()}")
        with contextlib.suppress(OSError):
            self._append(shorter, messages)
            shorter.replace(self._history)

    def _keep(self, message: str) -> None:
        with contextlib.suppress(OSError):  # a conversation does not end because its history cannot be kept
            self._append(self._history, [message])

    @staticmethod
    def _append(path: Path, messages: list[str]) -> None:
        """Add messages in one write, so that those of two conversations do not mix."""
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            # Letters outside ASCII as escapes: surrogates of bytes that are not text can also be kept.
            os.write(file, "".join(f"{json.dumps(message)}\n" for message in messages).encode())
        finally:
            os.close(file)
