"""``/``, ``/page/…`` and ``/docs``. They contain no secrets, and a browser needs no key for them."""

from __future__ import annotations

from typing import Final

import falcon

from gateway.http.request_context import PAGE_FILES, accepts_page
from gateway.page.files import File, read_assets, send_to_page
from protocol.failures import Code, Failure

FILE_PATH: Final = f"{PAGE_FILES}{{path:path}}"
DOCS_PATH: Final = "/docs"
RUNNING: Final = b"Ollama is running"
"""The text that clients of Ollama look for."""


class RootResource:
    """``GET /``: the page for browsers; one line for everything else, by which clients of Ollama know a server."""

    def __init__(self, page: File) -> None:
        """Send ``page`` to browsers."""
        self._page = page

    def on_get(self, req: falcon.Request, resp: falcon.Response) -> None:
        """Answer in the form that the client accepts."""
        resp.append_header("Vary", "Accept")
        if accepts_page(req.env):
            send_to_page(self._page, req, resp)
            return
        resp.content_type = "text/plain; charset=utf-8"
        resp.data = RUNNING


class FileResource:
    """``GET /page/…``: the files that the pages load."""

    def __init__(self, files: dict[str, File]) -> None:
        """Send ``files`` by their paths. No other path is looked up, so none leaves the folder."""
        self._files = files

    def on_get(self, req: falcon.Request, resp: falcon.Response, path: str) -> None:
        """Answer with the file."""
        file = self._files.get(path)
        if file is None:
            raise Failure(Code.NOT_FOUND, "the page has no such file").raised()
        send_to_page(file, req, resp)


class DocsResource:
    """``GET /docs``: a page that shows the OpenAPI document."""

    def __init__(self, page: File) -> None:
        """Send ``page``."""
        self._page = page

    def on_get(self, req: falcon.Request, resp: falcon.Response) -> None:
        """Answer with the page. Its files have addresses relative to the path without a last slash."""
        if req.env["PATH_INFO"].endswith("/"):
            raise falcon.HTTPPermanentRedirect(f"..{DOCS_PATH}")
        send_to_page(self._page, req, resp)


def page_resources() -> dict[str, object]:
    """Return the resources by path. The files are read now, once for all gateways: they belong to the running release."""
    files = read_assets()
    return {
        "/": RootResource(files["index.html"]),
        FILE_PATH: FileResource(files),
        DOCS_PATH: DocsResource(files["docs/index.html"]),
    }
