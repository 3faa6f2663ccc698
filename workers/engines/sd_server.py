"""Our ``sd-server``: stable-diffusion.cpp's library behind the HTTP of its own server, with that one's command line.

Exit codes: 0 after SIGTERM, 1 if the model cannot be loaded, 2 for a command line that makes no sense.  It listens
once the model is loaded and ends with the process that started it.  It draws one picture at a time, and what it has
begun it finishes: the library cannot be interrupted.  Of sd-server's many routes it has those that are asked for here.
"""

from __future__ import annotations

import base64
import hmac
import json
import os
import re
import select
import signal
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar, Final

from protocol import forms
from workers.engines import sd_library
from workers.engines.sd_flags import KEY, FlagError, Value, parse, version
from workers.engines.sd_library import Library, Picture, decoded, encoded

LARGEST_BODY: Final = 32 * 1024 * 1024
MOST_PICTURES: Final = 8
MOST_STEPS: Final = 100
_EXTRAS: Final = re.compile(r"<sd_cpp_extra_args>(.*?)</sd_cpp_extra_args>")
_SIZE: Final = re.compile(r"(\d{1,5})x(\d{1,5})")
_FIELDS: Final[dict[str, tuple[type, ...]]] = {
    "seed": (int,),
    "strength": (int, float),
    "negative_prompt": (str,),
    "clip_skip": (int,),
    "sample_params.sample_steps": (int,),
    "sample_params.sample_method": (str,),
    "sample_params.scheduler": (str,),
    "sample_params.eta": (int, float),
    "sample_params.flow_shift": (int, float),
    "sample_params.guidance.txt_cfg": (int, float),
    "sample_params.guidance.img_cfg": (int, float),
    "sample_params.guidance.distilled_guidance": (int, float),
}
"""What the JSON inside a prompt may say; the rest of it is passed over, as sd-server passes over what it does not know."""
_FORMS: Final = ("png", "jpeg", "webp")


class WrongError(Exception):
    """A request that cannot be; the text says why."""


class Asked:
    """A request as it is meant; raises :class:`WrongError`."""

    def __init__(self, fields: dict[str, Any], images: list[bytes], mask: bytes) -> None:
        prompt = fields.get("prompt")
        if not isinstance(prompt, str) or not prompt:
            raise WrongError("prompt required")
        extras = _EXTRAS.search(prompt)
        self.prompt = _EXTRAS.sub("", prompt)
        self.count = min(MOST_PICTURES, max(1, _whole(fields, "n", 1)))
        self.form = str(fields.get("output_format", "png")).lower()
        if self.form not in _FORMS:
            raise WrongError(f"invalid output_format, must be one of [{', '.join(_FORMS)}]")
        self.quality = min(100, max(0, _whole(fields, "output_compression", 100)))
        self.parameters: dict[str, Value] = _read(extras[1]) if extras else {}
        found = _SIZE.fullmatch(str(fields.get("size", "")))
        size = (int(found[1]), int(found[2])) if found else None
        self.given: list[Picture] = []
        try:
            for image in images:
                self.given.append(decoded(image, 3, size))
                size = size or (self.given[0].width, self.given[0].height)
            self.mask = decoded(mask, 1, size) if mask else None
        except ValueError as problem:
            raise WrongError(str(problem)) from None
        if size is not None:
            self.parameters |= {"width": size[0], "height": size[1]}


def read_json(body: bytes) -> Asked:
    """Return what a request for pictures asks; raises :class:`WrongError`."""
    try:
        fields = json.loads(body)
    except (ValueError, RecursionError):
        fields = None
    if not isinstance(fields, dict):
        raise WrongError("the body is not a JSON object")
    return Asked(fields, [], b"")


def read_form(kind: str, body: bytes) -> Asked:
    """Return what a request for pictures from pictures asks; raises :class:`WrongError`."""
    try:
        parts = forms.read(forms.boundary_in(kind), body)
        fields: dict[str, Any] = {part.name: part.text() for part in parts if not part.filename}
        for name in ("n", "output_compression"):
            if name in fields:
                fields[name] = int(fields[name])
    except ValueError as problem:
        raise WrongError(f"the form cannot be read: {problem}") from None
    images = [part.data for part in parts if part.name in ("image[]", "image")]
    if not images:
        raise WrongError("at least one image[] required")
    return Asked(fields, images, next((part.data for part in parts if part.name == "mask"), b""))


def _whole(fields: dict[str, Any], name: str, default: int) -> int:
    value = fields.get(name, default)
    if type(value) is not int:
        raise WrongError(f"{name} must be a whole number")
    return value


def _read(extras: str) -> dict[str, Value]:
    try:
        tree = json.loads(extras)
    except (ValueError, RecursionError):
        tree = None
    if not isinstance(tree, dict):
        raise WrongError("invalid sd_cpp_extra_args")
    found: dict[str, Value] = {}
    for path, kinds in _FIELDS.items():
        value: Any = tree
        for name in path.split("."):
            value = value.get(name) if isinstance(value, dict) else None
        if type(value) in kinds:
            found[path] = value
    steps = "sample_params.sample_steps"
    if steps in found:
        found[steps] = min(MOST_STEPS, max(1, int(found[steps])))
    if int(found.get("seed", 0)) < 0:
        del found["seed"]
    return found


class Handler(BaseHTTPRequestHandler):
    """One connection."""

    protocol_version = "HTTP/1.1"
    server_version = "sd-server"
    library: ClassVar[Library]
    key: ClassVar[bytes] = b""
    drawing: ClassVar[threading.Lock] = threading.Lock()

    def do_GET(self) -> None:
        """Answer what is asked of a server that has its model."""
        if self._may():
            if self.path == "/health":
                self._answer(200, {"status": "ok"})
            elif self.path == "/v1/models":
                model = {"id": "sd-cpp-local", "object": "model", "owned_by": "local"}
                self._answer(200, {"object": "list", "data": [model]})
            else:
                self._fail(404, "File Not Found")

    def do_POST(self) -> None:
        """Draw."""
        length = self.headers.get("Content-Length", "")
        if not length.isascii() or not length.isdigit() or int(length[:12]) > LARGEST_BODY:
            self.close_connection = True
            self._fail(413 if length.isdigit() else 411, "the body's length must be told, and bounded")
            return
        body = self.rfile.read(int(length))
        if not self._may():
            return
        try:
            if self.path == "/v1/images/generations":
                self._draw(read_json(body))
            elif self.path == "/v1/images/edits":
                self._draw(read_form(self.headers.get("Content-Type", ""), body))
            else:
                self._fail(404, "File Not Found")
        except (WrongError, FlagError) as problem:
            self._fail(400, str(problem))
        except ImportError:
            self._fail(501, "for that the Python package pillow is missing")

    def _draw(self, asked: Asked) -> None:
        with self.drawing:
            drawn = self.library.draw(asked.prompt, asked.count, asked.parameters, asked.given, asked.mask)
        if not drawn:
            self._fail(500, "generate_image returned no results")
            return
        data = [
            {"b64_json": base64.b64encode(encoded(picture, asked.form, asked.quality)).decode()} for picture in drawn
        ]
        self._answer(200, {"created": int(time.time()), "data": data, "output_format": asked.form})

    def _may(self) -> bool:
        shown = self.headers.get("Authorization", "").removeprefix("Bearer ").encode("utf-8", "replace")
        if not self.key or hmac.compare_digest(shown, self.key):
            return True
        self._fail(401, "Invalid API Key")
        return False

    def _fail(self, status: int, message: str) -> None:
        kind = "invalid_request_error" if status < 500 else "server_error"
        self._answer(status, {"error": {"code": status, "message": message, "type": kind}})

    def _answer(self, status: int, body: dict[str, Any]) -> None:
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        """Nothing: who asks, tells."""


class Server(ThreadingHTTPServer):
    """Listens on an address that is ours alone."""

    daemon_threads = True
    allow_reuse_port = True
    request_queue_size = 64

    def handle_error(self, *_: object) -> None:
        """Say one line about a connection that broke; a traceback helps nobody."""
        problem = sys.exc_info()[1]
        if not isinstance(problem, ConnectionError):
            sys.stderr.write(f"[ERROR] a request failed: {type(problem).__name__}: {problem}\n")


def wait_for_the_end(parent: int) -> None:
    """Return at SIGTERM or SIGINT, or when the parent is dead."""
    wake, waker = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.set_wakeup_fd(waker, warn_on_full_buffer=False)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: None)
    select.select([wake, parent], [], [])


def main(words: list[str]) -> int:
    """Serve until told to end; return the exit code."""
    try:
        parent = os.pidfd_open(os.getppid())
        given = parse(words)
        settings = {target: value for target, value in given if "." not in target}
        if "version" in settings:
            sys.stdout.write(f"sd-server over stable-diffusion-cpp-python {version()}\n")
            return 0
        if not {"context.model_path", "context.diffusion_model_path"} & {target for target, _ in given}:
            sys.stderr.write("sd-server: -m or --diffusion-model is missing\n")
            return 2
        Handler.key = os.environ.pop(KEY, "").encode()
        Handler.library = Library(sd_library.load(), given)
    except FlagError as problem:
        sys.stderr.write(f"sd-server: {problem}\n")
        return 2
    except (ImportError, ProcessLookupError) as problem:
        sys.stderr.write(f"sd-server: {problem}\n")
        return 1
    if not Handler.library.open():
        sys.stderr.write("sd-server: cannot load the model, or it draws no pictures\n")
        return 1
    try:
        server = Server((str(settings.get("host", "127.0.0.1")), int(settings.get("port", 1234))), Handler)
    except (OSError, OverflowError) as problem:
        sys.stderr.write(f"sd-server: cannot listen: {problem}\n")
        return 1
    threading.Thread(target=server.serve_forever, daemon=True).start()
    wait_for_the_end(parent)
    return 0


if __name__ == "__main__":
    code = main(sys.argv[1:])
    sys.stdout.flush()
    sys.stderr.flush()
    # At once: a picture that is being drawn is not waited for.
    os._exit(code)
