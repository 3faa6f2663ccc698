"""What `flm` says of itself: its version, and why it cannot use the NPU."""

from __future__ import annotations

import re
from typing import Any, Final

import msgspec

from protocol.wire.decoding import DECODE_ERRORS
from workers.jobs.driver_tools import ToolError, run_unchecked

_VERSION: Final = re.compile(r"\d+(?:\.\d+)+[\w.+-]*")
_CHECKS: Final = {
    "amd_device_found": "it finds no NPU",
    "kernel_ok": "the kernel or its NPU driver is too old",
    "npu_driver_ok": "the NPU's driver is too old",
    "all_fw_ok": "the NPU's firmware is too old",
    "enough_cols": "the NPU is too small",
    "memlock_ok": "too little memory may be locked (`ulimit -l`)",
}
"""What ``flm validate`` looks at → what is wrong if it is false."""


def version() -> str:
    """Ask ``flm`` which one it is, empty if there is none or it does not say."""
    done = run_unchecked("flm", "version", "--json")  # older ones answer in words
    found = _VERSION.search(done.stdout) if done else None
    return found[0] if found else ""


def problem() -> str:
    """Ask ``flm`` whether it could run here; return what is wrong, empty if nothing is or there is no ``flm``."""
    done = run_unchecked("flm", "validate", "--json")  # it ends with 1 where it cannot
    if done is None:
        return ""
    try:
        said = msgspec.json.decode(done.stdout[max(0, done.stdout.find("{")) :], type=dict[str, Any])
    except DECODE_ERRORS as error:
        raise ToolError(f"flm speaks no JSON that we know: {error}") from None
    if said.get("ready") is not False:
        return ""
    wrong = [words for check, words in _CHECKS.items() if said.get(check) is False]
    return f"flm cannot use the NPU: {'; '.join(wrong) or 'see `flm validate`'}."
