"""A stand-in for stable-diffusion.cpp's ``sd-server``: its command line, its HTTP, its lines, and real PNGs.

It draws noise that depends on the prompt, seed, steps, scale and negative prompt, as a real image does. Each step takes
a moment, or a second for an "endless" prompt, and nothing interrupts it. With the prompt "until /FILE", the last step
ends when that file is there, and the file is deleted when the image was sent. Any file is a model; a file is broken if
its name contains ``broken``.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import signal
import struct
import sys
import threading
import time
import zlib
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final

from protocol.wire import form_data

MULTIPLE: Final = 8
"""Sides are rounded up to what the model can draw."""
STEP_S: Final = 0.01
VALUES: Final = {
    "-l": "ip",
    "--listen-ip": "ip",
    "--listen-port": "port",
    "-m": "model",
    "--model": "model",
    "--diffusion-model": "diffusion",
    "--vae": "vae",
    "--llm": "llm",
    "--tae": "tae",
    "--clip_l": "clip_l",
    "--t5xxl": "t5xxl",
    "-t": "threads",
    "--steps": "steps",
    "--cfg-scale": "cfg",
    "-W": "width",
    "-H": "height",
    "-s": "seed",
    "--sampling-method": "method",
    "--flow-shift": "shift",
}
SWITCHES: Final = ("-v", "--verbose", "--color", "--fa", "--vae-tiling", "--diffusion-fa", "--offload-to-cpu")
DEFAULTS: Final = {"ip": "127.0.0.1", "port": "1234", "steps": "20", "cfg": "7.0", "seed": "42"}
UNTIL: Final = re.compile(r"until (/[\w/.-]+)")
EXTRAS: Final = re.compile(r"<sd_cpp_extra_args>(.*?)</sd_cpp_extra_args>")

Body = dict[str, Any]


def log(level: str, text: str) -> None:
    out = sys.stderr if level == "ERROR" else sys.stdout
    print(f"[{level:<5}] {text}", file=out, flush=True)


class FakeSdError(Exception):
    """What it answers with 400."""


def arguments(words: list[str]) -> dict[str, str]:
    """Read the command line; end the program as the original does."""
    found = dict(DEFAULTS)
    rest = iter(words)
    for word in rest:
        if word in SWITCHES:
            continue
        if word not in VALUES:
            log("ERROR", f"common.cpp:290  - error: unknown argument: {word}")
            raise SystemExit(1)
        found[VALUES[word]] = next(rest)
    return found


def load(given: dict[str, str]) -> None:
    """Load the model; end the program if that fails."""
    for role in ("model", "diffusion", "vae", "llm", "tae"):
        path = Path(given.get(role, ""))
        if role in given:
            log("INFO", f"stable-diffusion.cpp:204  - loading {role} from '{path}'")
            if not path.is_file() or "broken" in path.name:
                log("ERROR", f"stable-diffusion.cpp:206  - loading {role} from '{path}' failed")
                log("ERROR", "main.cpp:97   - new_sd_ctx_t failed")
                raise SystemExit(1)
    sys.stdout.write("  |=======>     | 1/2 - 10.61MB/s\x1b[K\r  |=============| 2/2 - 20.52MB/s\x1b[K\n")


class RequestedImage:
    """One request, as the program reads it."""

    def __init__(self, given: dict[str, str], body: Body, pictures: list[bytes]) -> None:
        self.pictures = pictures
        prompt = body.get("prompt", "")
        if not prompt:
            raise FakeSdError("prompt required")
        self.count = min(8, max(1, body.get("n", 1)))
        self.form = body.get("output_format", "png").lower()
        if self.form not in ("png", "jpeg"):
            raise FakeSdError("invalid output_format, must be one of [png, jpeg]")
        self.width, self.height = int(given.get("width", 512)), int(given.get("height", 512))
        if "x" in body.get("size", ""):
            self.width, self.height = (int(side) for side in body["size"].split("x"))
        extras = EXTRAS.search(prompt)
        self.prompt = EXTRAS.sub("", prompt)
        try:
            extra_fields = json.loads(extras[1]) if extras else {}
        except ValueError:
            log("ERROR", "common.cpp:1524 - json parse failed")
            raise FakeSdError("invalid sd_cpp_extra_args") from None
        sampling = extra_fields.get("sample_params", {})
        if pictures and "size" not in body:
            self.width, self.height = struct.unpack_from(">II", pictures[0], 16)
        self.strength = extra_fields.get("strength", 0.75)
        self.seed = extra_fields.get("seed", int(given["seed"]))
        self.steps = min(100, max(1, sampling.get("sample_steps", int(given["steps"]))))
        self.cfg = float(sampling.get("guidance", {}).get("txt_cfg", given["cfg"]))
        self.method = sampling.get("sample_method", given.get("method", "euler_a"))
        self.shift = float(sampling.get("flow_shift", given.get("shift", 0)))
        self.negative = extra_fields.get("negative_prompt", "")

    @property
    def awaited(self) -> Path | None:
        """The file before which it may not end."""
        until = UNTIL.search(self.prompt)
        return Path(until[1]) if until else None

    @property
    def parameters_text(self) -> str:
        """What the original writes into its pictures."""
        return (
            f"{self.prompt}\nNegative prompt: {self.negative}\nSteps: {self.steps}, CFG scale: {self.cfg:.6f}, "
            f"Seed: {self.seed}, Size: {self.width}x{self.height}, Sampler: {self.method}, Shift: {self.shift:g}, Version: stable-diffusion.cpp"
        )

    def drawn(self, place: int) -> bytes:
        """Return a PNG."""
        width, height = (-(-side // MULTIPLE) * MULTIPLE for side in (self.width, self.height))
        chosen = f"{self.prompt.strip()}|{self.negative}|{self.steps}|{self.cfg}|{self.seed + place}"
        for picture in self.pictures:
            chosen += f"|{zlib.crc32(picture)}|{self.strength}"
        noise, row = hashlib.shake_128(chosen.encode()).digest(width * height * 3), width * 3
        rows = b"".join(b"\0" + noise[start : start + row] for start in range(0, len(noise), row))
        head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
        text = b"parameters\0" + self.parameters_text.encode("latin-1", "replace")
        chunks = ((b"IHDR", head), (b"tEXt", text), (b"IDAT", zlib.compress(rows, 1)), (b"IEND", b""))
        return b"\x89PNG\r\n\x1a\n" + b"".join(
            struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
            for kind, data in chunks
        )


class FakeSdHandler(BaseHTTPRequestHandler):
    """One connection."""

    protocol_version = "HTTP/1.1"
    given: dict[str, str]
    drawing = threading.Lock()

    def do_GET(self) -> None:
        known = {"/v1/models": {"data": [{"id": "sd-cpp-local", "object": "model", "owned_by": "local"}]}}
        self.answer(200, known[self.path]) if self.path in known else self.answer(404, None)

    def do_POST(self) -> None:
        data = self.rfile.read(int(self.headers["Content-Length"]))
        try:
            if self.path == "/v1/images/generations":
                wanted = RequestedImage(self.given, json.loads(data), [])
            elif self.path == "/v1/images/edits":
                wanted = self.edit(data)
            else:
                self.answer(404, None)
                return
        except FakeSdError as problem:
            self.answer(400, {"error": str(problem)})
            return
        except (ValueError, TypeError, AttributeError) as problem:
            self.answer(500, {"error": "server_error", "message": f"[json.exception.type_error.302] {problem}"})
            return
        awaited = wanted.awaited
        with self.drawing:
            log("INFO", f"stable-diffusion.cpp:3401 - generating image: 1/{wanted.count} - seed {wanted.seed}")
            for step in range(1, wanted.steps + 1):
                time.sleep(1.0 if "endless" in wanted.prompt else STEP_S)
                while awaited and step == wanted.steps and not awaited.exists():
                    time.sleep(STEP_S)
                end = "\n" if step == wanted.steps else ""
                sys.stdout.write(f"\r  |====>    | {step}/{wanted.steps} - 1.00s/it\x1b[K{end}")
                sys.stdout.flush()
            pictures = [base64.b64encode(wanted.drawn(place)).decode() for place in range(wanted.count)]
        shown = [{"b64_json": picture} for picture in pictures]
        self.answer(200, {"created": int(time.time()), "data": shown, "output_format": wanted.form})
        if awaited:
            awaited.unlink()

    def edit(self, data: bytes) -> RequestedImage:
        """Read a form as the original does: an image that it cannot read is ignored."""
        parts = form_data.parse(form_data.boundary_from_content_type(self.headers["Content-Type"]), data)
        body: Body = {part.name: part.text() for part in parts if not part.filename}
        if not body.get("prompt"):
            raise FakeSdError("prompt required")
        images = [part.data for part in parts if part.name == "image[]"]
        if not images:
            raise FakeSdError("at least one image[] required")
        masks = [part.data + b"mask" for part in parts if part.name == "mask"]
        readable = [image for image in images + masks if image.startswith(b"\x89PNG")]
        return RequestedImage(self.given, body | {"n": int(body.get("n", 1))}, readable)

    def answer(self, status: int, body: Body | None) -> None:
        data = b"" if body is None else json.dumps(body, separators=(",", ":")).encode()
        self.send_response(status)
        if body is not None:
            self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        """Print nothing, like the original."""


class FakeSdServer(ThreadingHTTPServer):
    """A server that shares its port, as cpp-httplib does."""

    allow_reuse_port = True
    daemon_threads = True


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    FakeSdHandler.given = arguments(sys.argv[1:])
    load(FakeSdHandler.given)
    listening = FakeSdServer((FakeSdHandler.given["ip"], int(FakeSdHandler.given["port"])), FakeSdHandler)
    log("INFO", f"main.cpp:148  - listening on: {FakeSdHandler.given['ip']}:{FakeSdHandler.given['port']}")
    listening.serve_forever()
