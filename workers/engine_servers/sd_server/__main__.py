"""Our ``sd-server``: stable-diffusion.cpp's library behind the HTTP API and the command line of its own server.

Exit codes: 0 after SIGTERM, 1 if the model cannot be loaded, 2 for an invalid command line. It listens once the model
is loaded, and ends with the process that started it. It draws one image at a time, and finishes what it has begun: the
library cannot be interrupted. Of sd-server's many routes, it has those that lemonbus needs.
"""

from __future__ import annotations

import base64
import os
import sys
import time
from typing import Final

from protocol.runtime.process_exit import exit_immediately
from workers.backends.flag_table import FlagError
from workers.backends.package_version import package_version
from workers.backends.sdcpp.flags import FLAGS, KEY, PACKAGE
from workers.engine_servers.http_server import EngineHttpError, EngineHttpHandler, EngineHttpServer, not_found_error
from workers.engine_servers.sd_server import library as sd_library
from workers.engine_servers.sd_server.image_request_reader import (
    ParsedImageRequest,
    parse_form_request,
    parse_json_request,
)
from workers.engine_servers.sd_server.library import SdLibrary, encode_image
from workers.engine_servers.shutdown_wait import open_parent_pidfd, wait_for_shutdown

ALIAS: Final = "sd-cpp-local"
"""sd-server's name for whatever model it has."""


class SdHttpServer(EngineHttpServer):
    """The listener in front of one model."""

    def __init__(self, address: tuple[str, int], library: SdLibrary, key: str) -> None:
        """Listen at once; raises OSError."""
        self.library = library
        super().__init__(address, SdHttpHandler, ALIAS, key)


class SdHttpHandler(EngineHttpHandler):
    """One connection."""

    server: SdHttpServer
    server_version = "sd-server"
    largest = 32 * 1024 * 1024

    def serve(self, path: str, body: bytes) -> None:
        """Draw."""
        try:
            if path == "/v1/images/generations":
                self._draw(parse_json_request(body))
            elif path == "/v1/images/edits":
                self._draw(parse_form_request(self.headers.get("Content-Type", ""), body))
            else:
                raise not_found_error()
        except FlagError as problem:
            raise EngineHttpError(str(problem)) from None

    def _draw(self, asked: ParsedImageRequest) -> None:
        with self.server.engine_lock(self.client_disconnected):
            drawn = self.server.library.draw(asked.prompt, asked.count, asked.parameters, asked.given, asked.mask)
        if not drawn:
            raise EngineHttpError("generate_image returned no results", 500, "server_error")
        data = [
            {"b64_json": base64.b64encode(encode_image(picture, asked.form, asked.quality)).decode()}
            for picture in drawn
        ]
        self.send_json({"created": int(time.time()), "data": data, "output_format": asked.form})


def main(words: list[str]) -> int:
    """Serve until told to end; return the exit code."""
    try:
        parent = open_parent_pidfd()
        given = FLAGS.parse(words)
        settings = {target: value for target, value in given if "." not in target}
        if "version" in settings:
            sys.stdout.write(f"sd-server over stable-diffusion-cpp-python {package_version(PACKAGE)}\n")
            return 0
        if not {"context.model_path", "context.diffusion_model_path"} & {target for target, _ in given}:
            sys.stderr.write("sd-server: -m or --diffusion-model is missing\n")
            return 2
        library = SdLibrary(sd_library.load_bindings(), given)
    except FlagError as problem:
        sys.stderr.write(f"sd-server: {problem}\n")
        return 2
    except (ImportError, ProcessLookupError) as problem:
        sys.stderr.write(f"sd-server: {problem}\n")
        return 1
    key = os.environ.pop(KEY, "")
    if not library.open():
        sys.stderr.write("sd-server: cannot load the model, or it draws no pictures\n")
        return 1
    address = (str(settings.get("host", "127.0.0.1")), int(settings.get("port", 1234)))
    try:
        server = SdHttpServer(address, library, key)
    except (OSError, OverflowError) as problem:
        sys.stderr.write(f"sd-server: cannot listen: {problem}\n")
        return 1
    wait_for_shutdown(parent, server.open)
    return 0


if __name__ == "__main__":
    exit_immediately(main(sys.argv[1:]))
