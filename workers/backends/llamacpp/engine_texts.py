"""What llama-server says: the level and text of the lines that it prints, and what they and its errors mean. Pure.

llama.cpp prints parts of an invalid request: a grammar, a schema, tools, names of samplers.  A client's words have level
``trace``; the client finds its mistake in the answer.
"""

from __future__ import annotations

import re
from typing import Final

from workers.backends import llama_server_api

_PREFIX: Final = re.compile(rb"\d+\.\d\d\.\d{3}\.\d{3} ([DIWE]) ")
_LEVELS: Final = {b"D": "debug", b"I": "debug", b"W": "warning", b"E": "error"}
"""llama.cpp's information messages repeat lines of ours (started, ready, answered) many times."""
_EXPECTED_WARNING: Final = re.compile(
    rb"slot |srv +(params_from_|log_server_r|stop: cancel task|init: security: no API key|init: chat template)"
)
"""Warnings about what lemonbus does on purpose."""
_REQUEST_ERROR: Final = re.compile(
    rb"srv +(send_error|process_sing: failed to launch slot)|failed to parse grammar|Wrong type supplied for parameter"
)
"""Errors of a request without its words, which the answer also has."""
_QUOTES_REQUEST: Final = re.compile(rb"srv +operator\(\): got exception|common_sampler_types_from_|llg error")
"""Errors that quote the request."""
_FATAL: Final = re.compile(
    rb"(\S+:\d+: )?GGML_|terminate called|  what\(\)|Illegal instruction|Segmentation fault|Aborted|Killed"
    rb"|out of memory|(CUDA|HIP|ROCm|Vulkan|Metal|SYCL) error|vk::|libgomp|Fatal Python error|Traceback \(|MemoryError"
    rb"|#\d+ +0x|.*\(\+0x"
)
"""Beginnings of lines without a prefix that say why an engine ends."""

_UNKNOWN_ARCHITECTURE: Final = re.compile(r"unknown model architecture: '([\w.-]{1,64})'")
_BROKEN_FILE: Final = re.compile(
    r"corrupt|missing tensor|not found in model|tensor '[^']*' not found|has wrong shape|is not within the file bounds|invalid magic characters"
    r"|error loading model (vocabulary|hyperparameters)|failed to read (magic|tensor|key)"
)
"""Reasons why llama.cpp does not load a file, and never will."""

_NO_MEMORY: Final = re.compile(r"failed to allocate (\w{1,32}) buffer of size (\d+)")
_UNKNOWN_DEVICE: Final = re.compile(r"invalid device: ([\w.:-]{1,32})")

ERROR_TEXTS: Final = llama_server_api.ERROR_TEXTS._replace(
    too_long=re.compile("is too large to process"),
    caller_mistake=re.compile(
        r"^(Failed to parse|Failed to load image|Unknown reasoning format|Cannot use )|\[json\.exception\.|[Jj]inja"
        r"|input is not supported"
    ),
    internals=re.compile(
        r"\[json\.exception\.[\w.]+\] ?"
        r"|^Unable to generate parser for this template\. Automatic parser generation failed: "
        r"|^Failed to initialize samplers: "
        r"|; tools = [\s\S]*| - hint[\s\S]*"
    ),
    # The C++ library's words for a token that is looked up and not in the vocabulary.
    unclear={"_M_range_check": "a token number is not in the model's vocabulary"},
)


def file_problem(output: str) -> str:
    """From llama.cpp's last lines, return what is wrong with the model's file; empty if they name another reason or none."""
    unknown = _UNKNOWN_ARCHITECTURE.search(output)
    if unknown is not None:
        return f"this llama-server does not know the model's architecture, {unknown[1]}"
    return (
        "llama-server says that the model's file is broken: download or convert it again"
        if _BROKEN_FILE.search(output)
        else ""
    )


def load_problem(output: str) -> str:
    """From llama.cpp's last lines, return why this load failed: too little memory, or a device that it does not know. Else empty."""
    if memory := _NO_MEMORY.search(output):
        return (
            f"the memory of {memory[1]} is not enough for {int(memory[2]) / 2**20:,.0f} MiB more. Unload another model, or load "
            "this one with a smaller ctx_size, fewer slots or fewer gpu_layers"
        )
    if device := _UNKNOWN_DEVICE.search(output):
        return f"llama-server does not know the device {device[1]}. `llama-server --list-devices` shows those that it knows"
    return ""


def parse_line(line: bytes, asked: bool) -> tuple[str, str]:
    """Return the level and text of a line, without llama.cpp's prefix.

    ``asked``: the engine has had a client's request.

    A line without a prefix is ``info``, but ``trace`` once it may quote a client.
    """
    found = _PREFIX.match(line)
    if found is None:
        return "trace" if asked and not _FATAL.match(line) else "info", line.decode("utf-8", "replace")
    text = line[found.end() :]
    level = _LEVELS[found[1]]
    if level in ("warning", "error"):
        if _QUOTES_REQUEST.match(text):
            level = "trace"
        elif _REQUEST_ERROR.match(text) or (level == "warning" and _EXPECTED_WARNING.match(text)):
            level = "debug"
    return level, text.decode("utf-8", "replace")
