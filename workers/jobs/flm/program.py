"""FastFlowLM as jobs use it: how its models are fetched and removed, its version, and why it cannot use the NPU."""

from __future__ import annotations

import re
from typing import Any, Final

import msgspec

from protocol.failures import DECODE_ERRORS
from workers.jobs.driver_tools import ToolError, run_unchecked
from workers.jobs.flm import models
from workers.jobs.model_program import ModelProgram

_VERSION: Final = re.compile(r"\d+(?:\.\d+)+[\w.+-]*")
_CHECKS: Final = {
    "amd_device_found": "it finds no NPU",
    "kernel_ok": "the kernel or its NPU driver is too old",
    "npu_driver_ok": "the NPU's driver is too old",
    "all_fw_ok": "the NPU's firmware is too old",
    "enough_cols": "the NPU is too small",
    "memlock_ok": "too little memory may be locked (`ulimit -l`)",
}
"""Check of ``flm validate`` → the problem if it is false."""


def version() -> str:
    """Return the version of ``flm``, empty if it is not installed or does not print one."""
    done = run_unchecked("flm", "version", "--json")  # older versions print a sentence
    found = _VERSION.search(done.stdout) if done else None
    return found[0] if found else ""


def problem() -> str:
    """Return why ``flm`` cannot run models here, empty if it can or is not installed."""
    done = run_unchecked("flm", "validate", "--json")  # its exit status is 1 if it cannot
    if done is None:
        return ""
    try:
        report = msgspec.json.decode(done.stdout[max(0, done.stdout.find("{")) :], type=dict[str, Any])
    except DECODE_ERRORS as error:
        raise ToolError(f"flm printed JSON of an unknown form: {error}") from None
    if report.get("ready") is not False:
        return ""
    wrong = [words for check, words in _CHECKS.items() if report.get(check) is False]
    return f"flm cannot use the NPU: {'; '.join(wrong) or 'see `flm validate`'}."


FLM: Final = ModelProgram(
    scheme=models.PROGRAM,
    title="FastFlowLM",
    action="flm validate",
    fetch=models.fetch,
    remove=models.remove,
    version=version,
    problem=problem,
)
