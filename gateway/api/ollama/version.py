"""``/api/version``, and Ollama's routes that are not supported."""

from __future__ import annotations

from typing import Final

import msgspec

from gateway.api.common.routes import HttpCaller, Nothing, route
from gateway.api.common.unsupported import unsupported
from protocol import RELEASE

OLLAMA_VERSION: Final = "0.12.6"
"""The version of Ollama whose API this is. Clients refuse servers that are too old for their needs."""


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
