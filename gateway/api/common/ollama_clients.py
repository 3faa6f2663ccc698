"""Recognizes Ollama's clients: on paths that Ollama and Mullama share, they get Ollama's answers. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gateway.api.common import ndjson
from gateway.http.request_context import is_browser


def is_ollama_client(environ: Mapping[str, Any]) -> bool:
    """Return whether one of Ollama's clients sent a request, judging by its headers in the WSGI environment.

    Ollama's packages for Python, JavaScript and Go, and most programs that use them, have its name in their
    ``User-Agent``. A browser replaces that, but keeps the ``Accept`` of the package. A client that accepts NDJSON has
    to read errors within a stream, where they have Ollama's form.
    """
    accept: str = environ.get("HTTP_ACCEPT", "")
    if "ollama" in environ.get("HTTP_USER_AGENT", "").lower() or ndjson.MEDIA_TYPE in accept:
        return True
    return is_browser(environ) and accept == "application/json"
