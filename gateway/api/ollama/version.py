"""``/``, ``/api/version``, and Ollama's routes that are not supported."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Final

import falcon
import msgspec

from gateway.access.scopes import Scope
from gateway.api.common.routes import HttpCaller, Nothing, route
from gateway.api.common.unsupported import UnsupportedResource
from protocol import RELEASE

OLLAMA_VERSION: Final = "0.12.6"
"""The version of Ollama whose API this is. Clients refuse servers that are too old for their needs."""
_RUNNING: Final = "Ollama is running"
"""The text that clients look for."""
_PAGE: Final = f"""<!doctype html>
<html lang="en"><meta charset="utf-8"><title>lemonbus</title>
<h1>lemonbus {RELEASE}</h1>
<p>The server is running. Its models: <a href="/v1/models">/v1/models</a>. Its state: <a href="/v1/health">/v1/health</a>.</p>
</html>
"""


class RootResource:
    """``GET /`` and ``HEAD /``: how Ollama's clients find out whether the server is there."""

    def on_get(self, req: falcon.Request, resp: falcon.Response) -> None:
        """Answer with the text that clients look for, or with a page for a browser."""
        if "text/html" in (req.get_header("Accept") or ""):
            resp.content_type = falcon.MEDIA_HTML
            resp.text = _PAGE
        else:
            resp.content_type = falcon.MEDIA_TEXT
            resp.text = _RUNNING


class OllamaVersion(msgspec.Struct):
    """The version of Ollama whose API this is, and ours."""

    version: str
    lemonbus: str


@route("GET", "/api/version")
def show_version(_caller: HttpCaller, _request: Nothing) -> OllamaVersion:
    """Shows versions."""
    return OllamaVersion(OLLAMA_VERSION, RELEASE)


class BlobsResource(UnsupportedResource):
    """``/api/blobs/DIGEST``: files for ``create``."""

    scopes: ClassVar[Mapping[str, Scope]] = {"GET": Scope.INFERENCE, "POST": Scope.INFERENCE}

    def on_head(self, _req: falcon.Request, _resp: falcon.Response, **_parameters: str) -> None:
        """Answer 501: clients ask whether a file exists before they send it."""
        raise self._failure.raised()


def create() -> UnsupportedResource:
    """Return ``/api/create``."""
    return UnsupportedResource(
        "models from a Modelfile are",
        "put a GGUF file into extra_models_dir, or register a checkpoint with POST /v1/pull and its options with POST /v1/load",
    )


def push() -> UnsupportedResource:
    """Return ``/api/push``."""
    return UnsupportedResource("uploads are", "the files are in the hub's cache, which `hf upload` can publish")


def blobs() -> BlobsResource:
    """Return ``/api/blobs/DIGEST``."""
    return BlobsResource("uploads of files are", "put the file into extra_models_dir")
