"""Our ``sd-server``: stable-diffusion.cpp's library behind the HTTP of its own server, with that one's command line.

Exit codes: 0 after SIGTERM, 1 if the model cannot be loaded, 2 for a command line that makes no sense.  It listens
once the model is loaded and ends with the process that started it.  It draws one picture at a time, and what it has
begun it finishes: the library cannot be interrupted.  Of sd-server's many routes it has those that are asked for here.
"""

from __future__ import annotations

import base64
import os
import sys
import time
from typing import Final

from workers.engines import sd_library
from workers.engines.door import Door, Visit, unknown
from workers.engines.ending import leave, starter, wait_for_the_end
from workers.engines.flags import FlagError
from workers.engines.refusal import RefusedError
from workers.engines.sd_flags import KEY, parse, version
from workers.engines.sd_library import Library, encoded
from workers.engines.sd_request import Asked, read_form, read_json

ALIAS: Final = "sd-cpp-local"
"""What sd-server calls whatever model it has."""


class Server(Door):
    """The listener in front of one model."""

    def __init__(self, address: tuple[str, int], library: Library, key: str) -> None:
        """Listen at once; raises OSError."""
        self.library = library
        super().__init__(address, Handler, ALIAS, key)


class Handler(Visit):
    """One connection."""

    server: Server
    server_version = "sd-server"
    largest = 32 * 1024 * 1024

    def serve(self, path: str, body: bytes) -> None:
        """Draw."""
        try:
            if path == "/v1/images/generations":
                self._draw(read_json(body))
            elif path == "/v1/images/edits":
                self._draw(read_form(self.headers.get("Content-Type", ""), body))
            else:
                raise unknown()
        except FlagError as problem:
            raise RefusedError(str(problem)) from None
        except ImportError:
            raise RefusedError("for that the Python package pillow is missing", 501, "server_error") from None

    def _draw(self, asked: Asked) -> None:
        with self.server.turn(self.gone):
            drawn = self.server.library.draw(asked.prompt, asked.count, asked.parameters, asked.given, asked.mask)
        if not drawn:
            raise RefusedError("generate_image returned no results", 500, "server_error")
        data = [
            {"b64_json": base64.b64encode(encoded(picture, asked.form, asked.quality)).decode()} for picture in drawn
        ]
        self.tell({"created": int(time.time()), "data": data, "output_format": asked.form})


def main(words: list[str]) -> int:
    """Serve until told to end; return the exit code."""
    try:
        parent = starter()
        given = parse(words)
        settings = {target: value for target, value in given if "." not in target}
        if "version" in settings:
            sys.stdout.write(f"sd-server over stable-diffusion-cpp-python {version()}\n")
            return 0
        if not {"context.model_path", "context.diffusion_model_path"} & {target for target, _ in given}:
            sys.stderr.write("sd-server: -m or --diffusion-model is missing\n")
            return 2
        library = Library(sd_library.load(), given)
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
        server = Server(address, library, key)
    except (OSError, OverflowError) as problem:
        sys.stderr.write(f"sd-server: cannot listen: {problem}\n")
        return 1
    server.open()
    wait_for_the_end(parent)
    return 0


if __name__ == "__main__":
    leave(main(sys.argv[1:]))
