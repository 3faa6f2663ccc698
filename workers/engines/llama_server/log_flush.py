"""Waits until llama.cpp has written its log: a separate thread writes it, and a process that ends loses what is queued.

Otherwise, the reason why a model cannot be loaded is lost. The wheel has no function for this, but the library in it
has.
"""

from __future__ import annotations

from typing import Final

_LOG: Final = "_Z15common_log_mainv"
"""``common_log_main()``, as C++ compilers name it in the library."""
_FLUSH: Final = "_Z16common_log_flushP10common_log"
"""``common_log_flush(common_log *)``: returns when the queue is written."""


def flush_log(library: str) -> bool:
    """Wait for the log of the extension module with this path; return False if it has no such functions."""
    import ctypes  # noqa: PLC0415 - for a model that cannot be loaded; every worker also has this module

    try:
        native = ctypes.CDLL(library)
        log, flush = native[_LOG], native[_FLUSH]
    except (OSError, AttributeError):
        return False
    log.argtypes, log.restype = [], ctypes.c_void_p
    flush.argtypes, flush.restype = [ctypes.c_void_p], None
    flush(log())
    return True
