"""Sends the log messages of gunicorn and of other libraries to our own log."""

from __future__ import annotations

import logging
from typing import Any

from protocol.runtime import logs


class GunicornLogger:
    """gunicorn's ``logger_class``."""

    def __init__(self, cfg: Any) -> None:
        """Keep gunicorn's configuration; logging is configured in ``protocol.runtime.logs``."""
        self.cfg = cfg

    def setup(self, cfg: Any) -> None:
        """Keep a new configuration."""
        self.cfg = cfg

    def _log(self, level: str, text: Any, args: tuple[Any, ...], fields: dict[str, Any]) -> None:
        fields.pop("extra", None)
        # A single mapping has the values by name, as in the standard library.
        values = args[0] if len(args) == 1 and isinstance(args[0], dict) else args
        getattr(logs.get_logger(), level)(str(text) % values if args else str(text), part="gunicorn", **fields)

    def critical(self, text: Any, *args: Any, **fields: Any) -> None:
        """Log."""
        self._log("critical", text, args, fields)

    def error(self, text: Any, *args: Any, **fields: Any) -> None:
        """Log."""
        self._log("error", text, args, fields)

    def warning(self, text: Any, *args: Any, **fields: Any) -> None:
        """Log."""
        self._log("warning", text, args, fields)

    def info(self, text: Any, *args: Any, **fields: Any) -> None:
        """Log at level ``debug``: gunicorn's information only helps debugging."""
        self._log("debug", text, args, fields)

    def debug(self, text: Any, *args: Any, **fields: Any) -> None:
        """Log nothing: these messages are about each connection."""

    def exception(self, text: Any, *args: Any, **fields: Any) -> None:
        """Log with the traceback."""
        self._log("error", text, args, {**fields, "exc_info": True})

    def log(self, _level: int, text: Any, *args: Any, **fields: Any) -> None:
        """Log."""
        self._log("info", text, args, fields)

    def access(self, *_: Any) -> None:
        """Log nothing: ``gateway/http/connections/connection.py`` writes the line of each request."""

    def reopen_files(self) -> None:
        """Do nothing: there are no files."""

    def close_on_exec(self) -> None:
        """Do nothing: there are no files."""


class _LibraryLogHandler(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        level = record.levelname.lower()
        log = getattr(logs.get_logger(), level if level in logs.LEVEL_RANK else "info")
        log(record.getMessage(), part=record.name, exc_info=record.exc_info)


def install_library_log_handler() -> None:
    """Send the standard library's log messages to our log."""
    root = logging.getLogger()
    root.handlers[:] = [_LibraryLogHandler()]
    root.setLevel(logging.WARNING)
