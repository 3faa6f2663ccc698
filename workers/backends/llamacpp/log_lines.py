"""What llama.cpp prints, as level and text of a line in the log. Pure.

It prints what a client wrote when it is asked for something that makes no sense: a grammar, a schema, tools, the names
of samplers.  A client's words are for ``trace`` alone, and what a client did wrong is in its answer.
"""

from __future__ import annotations

import re
from typing import Final

_PREFIX: Final = re.compile(rb"\d+\.\d\d\.\d{3}\.\d{3} ([DIWE]) ")
_LEVELS: Final = {b"D": "debug", b"I": "debug", b"W": "warning", b"E": "error"}
"""What llama.cpp calls information repeats ours (started, ready, answered) many times over."""
_EXPECTED_WARNING: Final = re.compile(
    rb"slot |srv +(params_from_|log_server_r|stop: cancel task|init: security: no API key|init: chat template)"
)
"""Warnings about what we do on purpose."""
_REQUEST_ERROR: Final = re.compile(
    rb"srv +(send_error|process_sing: failed to launch slot)|failed to parse grammar|Wrong type supplied for parameter"
)
"""Complaints about a request, without its words: the answer says them already."""
_QUOTES_REQUEST: Final = re.compile(rb"srv +operator\(\): got exception|common_sampler_types_from_|llg error")
"""Complaints with the words of a request in them."""
_FATAL: Final = re.compile(
    rb"(\S+:\d+: )?GGML_|terminate called|  what\(\)|Illegal instruction|Segmentation fault|Aborted|Killed"
    rb"|out of memory|(CUDA|HIP|ROCm|Vulkan|Metal|SYCL) error|vk::|libgomp|Fatal Python error|Traceback \(|MemoryError"
    rb"|#\d+ +0x|.*\(\+0x"
)
"""How a line begins that says why an engine ends: those have no prefix either."""


def parse_line(line: bytes, asked: bool) -> tuple[str, str]:
    """Return the level and text of a line, without llama.cpp's prefix; ``asked``: a client was in it already.

    A line without a prefix is ``info``, and as soon as it may be a client's, ``trace``.
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
