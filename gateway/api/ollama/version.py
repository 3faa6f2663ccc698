"""``/``, ``/api/version``, and Ollama's routes that are not supported."""

from __future__ import annotations

from typing import Final

import msgspec

from gateway.api.common.routes import Content, HttpCaller, Nothing, route
from gateway.api.common.unsupported import unsupported
from protocol import RELEASE

OLLAMA_VERSION: Final = "0.12.6"
"""The version of Ollama whose API this is. Clients refuse servers that are too old for their needs."""
_RUNNING: Final = b"Ollama is running"
"""The text that clients look for."""
_PAGE: Final = f"""<!doctype html>
<html lang="en"><meta charset="utf-8"><title>lemonbus</title>
<h1>lemonbus {RELEASE}</h1>
<p>The server is running. Its models: <a href="/v1/models">/v1/models</a>. Its state: <a href="/v1/health">/v1/health</a>.</p>
</html>
"""


@route("GET", "/", texts=("text/plain", "text/html"))
def show_running(caller: HttpCaller, _request: Nothing) -> Content:
    """Says that the server is running.

    Ollama's clients look for the text; a browser gets a page.
    """
    if "text/html" in caller.env.get("HTTP_ACCEPT", ""):
        return Content("text/html; charset=utf-8", _PAGE.encode())
    return Content("text/plain; charset=utf-8", _RUNNING)


class OllamaVersion(msgspec.Struct):
    """The version of Ollama whose API this is, and ours."""

    version: str
    lemonbus: str


@route("GET", "/api/version")
def show_version(_caller: HttpCaller, _request: Nothing) -> OllamaVersion:
    """Shows versions."""
    return OllamaVersion(OLLAMA_VERSION, RELEASE)


_UPLOAD: Final = ("uploads of files are", "put the file into extra_models_dir")
create_model = unsupported(
    *("POST", "/api/create", "models from a Modelfile are"),
    "put a GGUF file into extra_models_dir, or register a checkpoint with POST /v1/pull and its options with POST /v1/load",
)
push_model = unsupported(
    *("POST", "/api/push", "uploads are"), "the files are in the hub's cache, which `hf upload` can publish"
)
upload_file = unsupported("POST", "/api/blobs/{digest}", *_UPLOAD)
# Clients ask whether a file exists before they send it.
find_file = unsupported("HEAD", "/api/blobs/{digest}", *_UPLOAD)
