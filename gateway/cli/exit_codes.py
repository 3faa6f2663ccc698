"""How a command ends: the exit codes, and the error that carries one."""

from __future__ import annotations

from typing import Any, Final

OK: Final = 0
FAILED: Final = 1
USAGE: Final = 2
UNREACHABLE: Final = 3
FORBIDDEN: Final = 4
INTERRUPTED: Final = 130

EXIT_CODE_HELP: Final = """\
Exit codes: 0 done; 1 the server refused or failed; 2 wrong usage or configuration;
3 the server cannot be reached; 4 the API key is missing or does not allow this; 130 interrupted."""


class CommandError(Exception):
    """Ends the command with a message on stderr and an exit code."""

    def __init__(
        self, message: str, exit_code: int = FAILED, status: int = 0, facts: dict[str, Any] | None = None
    ) -> None:
        """Print ``message`` and end with ``exit_code``. ``status``, ``facts``: those of the error response that caused it."""
        super().__init__(message)
        self.exit_code = exit_code
        self.status = status
        self.facts = facts or {}
