"""FastFlowLM in jobs: its own program fetches and removes its models, and says what it lacks; lemonbus notes which models it has."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from typing import Any, Final

import msgspec

from protocol.failures import DECODE_ERRORS
from protocol.models.checkpoints import TagCheckpoint
from workers.jobs.driver_tools import ToolError, run_unchecked
from workers.jobs.errors import SourceError
from workers.jobs.progress import DownloadProgress

PROGRAM: Final = "flm"
_FILE: Final = re.compile(r"Downloading (\d+)/(\d+): (\S.*)")
_AMOUNT: Final = re.compile(r"Downloading: *[\d.]+% *\(([\d.]+) *([kKMG]?)i?B */ *([\d.]+) *([kKMG]?)i?B\)")
_PROGRESS: Final = re.compile(
    r"^(- |Downloading|Overall progress|Files to download|Missing files|Checking Hash|Model: )"
)
_SIGN: Final = re.compile(r"\x1b\[[0-9;]*[A-Za-z]|^\s*\[FLM\]|[\x00-\x1f\x7f]")
_PATH: Final = re.compile(r"(?<![\w:/])(?:~|\.)?/[^\s'\"]+")
"""A path of this machine, but not part of an address."""
_LAST_LINES: Final = 2
_LAST_CHARS: Final = 300
_UNITS: Final = {"": 1, "k": 2**10, "K": 2**10, "M": 2**20, "G": 2**30}
"""Its MB are MiB."""
_MAX_OUTPUT_CHARS: Final = 2000
_LIST_S: Final = 30.0
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


class _Listed(msgspec.Struct):
    name: str
    installed: bool = False
    size: int = 0


class _List(msgspec.Struct):
    models: list[_Listed]


def fetch(checkpoint: TagCheckpoint, cache_dir: str, progress: DownloadProgress) -> int:
    """Let ``flm`` fetch a model; return the number of files in its output. Raises :class:`SourceError`."""
    program = shutil.which(PROGRAM)
    if program is None:
        raise SourceError("flm was not found on PATH; it fetches models for recipe flm itself")
    flm_progress = _FlmProgress(progress)
    output = ""
    with subprocess.Popen(
        [program, "pull", checkpoint.tag], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    ) as process:
        assert process.stdout is not None  # noqa: S101 - tells the type checker
        for line in _lines(process.stdout.fileno()):
            if not flm_progress.read(line):
                output = (output + line + "\n")[-_MAX_OUTPUT_CHARS:]
        code = process.wait()
    if code:
        raise SourceError(f"flm could not fetch {checkpoint.tag} (exit {code}){_last_words(output)}", output)
    listed = _model_in_list(program, checkpoint.tag)
    if listed is not None and not listed.installed:
        raise SourceError(
            f"flm fetched {checkpoint.tag}, but does not list it as installed{_last_words(output)}", output
        )
    mark = checkpoint.mark(cache_dir)
    mark.parent.mkdir(parents=True, exist_ok=True)
    draft = mark.with_suffix(".new")
    draft.write_bytes(
        msgspec.json.encode({"tag": checkpoint.tag, "size": listed.size if listed else flm_progress.size})
    )
    draft.replace(mark)
    return max(1, flm_progress.files)


def _last_words(output: str) -> str:
    """Return the last lines of a failed ``flm`` as a caller may read them: short, and without paths."""
    lines = [_SIGN.sub("", line).strip() for line in output.splitlines()]
    last = [_PATH.sub("…", line) for line in lines if line and not _PROGRESS.search(line)][-_LAST_LINES:]
    return f": {'; '.join(last)[-_LAST_CHARS:]}" if last else ""


def _lines(fd: int) -> Iterator[str]:
    """Yield the lines of a pipe as they come. Each version of an overwritten progress line counts as a line."""
    rest = b""
    while data := os.read(fd, 65536):
        *lines, rest = re.split(rb"[\r\n]+", rest + data)
        yield from (line.decode("utf-8", "replace") for line in lines if line)
    if rest:
        yield rest.decode("utf-8", "replace")


def _model_in_list(program: str, tag: str) -> _Listed | None:
    """Return a model's entry in flm's own list. None if there is no list: then flm's exit status decides."""
    try:
        done = subprocess.run(
            [program, "list", "--json"], stdin=subprocess.DEVNULL, capture_output=True, timeout=_LIST_S, check=False
        )
        output = done.stdout[max(0, done.stdout.find(b"{")) :]
        models = msgspec.json.decode(output, type=_List).models
    except (OSError, subprocess.TimeoutExpired, *DECODE_ERRORS):
        return None
    return next((model for model in models if model.name == tag), None)


def remove(tag: str) -> str:
    """Let ``flm`` remove a model; return why it did not, empty if it did or the model is not installed any more."""
    program = shutil.which(PROGRAM)
    if program is None:
        return ""
    done = subprocess.run([program, "remove", tag], stdin=subprocess.DEVNULL, capture_output=True, check=False)
    return f"flm could not remove {tag} (exit {done.returncode})" if done.returncode else ""


class _FlmProgress:
    """Parses the progress lines of ``flm``."""

    def __init__(self, progress: DownloadProgress) -> None:
        self._progress = progress
        self._total = 0
        self.files = 0
        self.size = 0

    def read(self, line: str) -> bool:
        """Parse a line; return whether it has only an amount."""
        file, amount = _FILE.search(line), _AMOUNT.search(line)
        if file:
            self._total = 0
            self.files = int(file[2])
            self._progress.begin(file[3].strip(), int(file[1]), self.files, 0)
        elif amount:
            total = int(float(amount[3]) * _UNITS[amount[4]])
            reading = self._progress.reading
            if total != self._total and reading.file:
                self._progress.begin(reading.file, reading.file_index, reading.total_files, total)
            self.size += total - self._total
            self._total = total
            self._progress.at(int(float(amount[1]) * _UNITS[amount[2]]))
        return amount is not None


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
