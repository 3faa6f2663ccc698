"""``python deploy/install.py '.[llamacpp]' 'lemonbus and its engine'``: pip's installation, told in one line.

The Makefile runs it with the Python of the virtual environment to install into, before anything but pip is there:
the standard library is all it has.  ``setup.cfg[docs]`` is what this extra needs, without lemonbus.  Pip's own output goes to ``install.log`` in that environment.  Exits with pip's
status; a failure is one more line, which says what failed and what to do.
"""

from __future__ import annotations

import os
import re
import select
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from configparser import ConfigParser
from pathlib import Path
from typing import Final, TextIO

PATIENCE: Final = {"PIP_RETRIES": "1", "PIP_TIMEOUT": "10"}
"""Pip's own five retries of 15 s take minutes to find out that there is no network."""
SAME: Final = {"default-timeout": "timeout"}
"""Options of pip that have two names."""
SILENCE_S: Final = 10.0
"""Seconds without a word from pip, before it has found the first package, after which a user is told what it waits for."""

_STEP: Final = re.compile(r"\s*(?:Collecting|Processing|Requirement already satisfied:) ")
_CONNECTION: Final = re.compile(
    r"^.*(?:Retrying|[Cc]onnection|Failed to connect|Max retries exceeded).*$", re.MULTILINE
)
"""A line about the network; package names have words like timeout in them."""
_CAUSES: Final = (
    (r"CERTIFICATE_VERIFY_FAILED|SSLError", "its certificate is not trusted"),
    (r"ProxyError|Cannot connect to proxy", "the proxy does not answer"),
    (r"ConnectTimeoutError|ReadTimeoutError|timed out", "it does not answer"),
    (r"[Nn]ame or service not known|name resolution|NameResolutionError|getaddrinfo", "its name is not found"),
    (r"Connection refused", "the connection is refused"),
    (r"NewConnectionError|Network is unreachable|No route to host|ConnectionResetError", "there is no connection"),
)
_UNKNOWN: Final = re.compile(r"No matching distribution found for (\S+)")
_ERROR: Final = re.compile(r"^\s*ERROR: (?!ResolutionImpossible)(.+)$", re.MULTILINE)
_NETWORK: Final = "check the network, or name a proxy (HTTPS_PROXY) or a package index (PIP_INDEX_URL)"


def main(arguments: list[str]) -> int:
    """Install a requirement in editable form, or the packages of an extra; return pip's exit status."""
    requirement, what = arguments
    environment = Path(sys.prefix)
    log = environment / "install.log"
    progress = InstallProgressLine(
        f"Installing {what} into {os.path.relpath(environment)}; this happens once.", sys.stdout
    )
    with log.open("w+", encoding="utf-8", errors="replace") as file:
        code = _pip(_words(requirement), file, progress)
        progress.end()
        if code:
            file.seek(0)
            sys.stderr.write(f"lemonbus: cannot install {what}: {reason(file.read())}; all that pip said: {log}\n")
    return code


class InstallProgressLine:
    """One line: what is done, and on a terminal how far it is."""

    def __init__(self, text: str, out: TextIO) -> None:
        """Say what is done."""
        self._text, self._out = text, out
        self._shows = out.isatty()
        self._began = time.monotonic()
        self._found = 0
        self._write(text if self._shows else f"{text}\n")

    def _write(self, text: str) -> None:
        self._out.write(text)
        self._out.flush()

    def line(self, text: str) -> None:
        """Pip has printed a line."""
        if _STEP.match(text):
            self._found += 1
            if self._shows:
                self._write(f"\r{self._text} {self._found} packages")

    def silence(self) -> None:
        """Pip has printed nothing for :data:`SILENCE_S`."""
        if not self._found:
            self._write("\n" * self._shows + "The package index has not answered yet; is there a network?\n")
            self._shows = False

    def end(self) -> None:
        """Pip has ended."""
        if self._shows:
            self._write(f"\r{self._text} {self._found} packages, {time.monotonic() - self._began:.0f} s\n")


def _words(requirement: str) -> list[str]:
    """Return pip's words for a requirement."""
    extra = re.fullmatch(r"(.*setup\.cfg)\[(\w+)\]", requirement)
    if extra is None:
        return ["-e", requirement]
    parser = ConfigParser(interpolation=None)
    parser.read_string(Path(extra[1]).read_text(encoding="utf-8"))
    return parser["options.extras_require"][extra[2]].split("\n")[1:]


def _pip(words: list[str], log: TextIO, progress: InstallProgressLine) -> int:
    command = [sys.executable, "-m", "pip", "install", "--no-input", "--progress-bar", "off", *words]
    environment = {"PIP_DISABLE_PIP_VERSION_CHECK": "1", **patience(_configured()), **os.environ}
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=environment) as process:
        for line in _lines(process, progress):
            log.write(line)
            progress.line(line)
    return process.returncode


def _lines(process: subprocess.Popen[bytes], progress: InstallProgressLine) -> Iterator[str]:
    """Return what pip prints, line by line; tell ``progress`` once if it prints nothing for long."""
    assert process.stdout is not None  # noqa: S101 - it was asked for
    rest, message = b"", False
    while True:
        if not message and not select.select([process.stdout], [], [], SILENCE_S)[0]:
            progress.silence()
            message = True
        piece = os.read(process.stdout.fileno(), 65536)
        *lines, rest = (rest + piece).split(b"\n")
        yield from (f"{line.decode('utf-8', 'replace')}\n" for line in lines)
        if not piece:
            yield rest.decode("utf-8", "replace")
            return


def _configured() -> str:
    command = [sys.executable, "-m", "pip", "config", "list"]
    return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=False).stdout


def patience(configured: str) -> Mapping[str, str]:
    """Return what pip is told about waiting, unless the user has told it: ``configured`` is ``pip config list``."""
    names = [line.partition("=")[0].rpartition(".")[2] for line in configured.splitlines()]
    known = {SAME.get(name, name) for name in names}
    return {name: value for name, value in PATIENCE.items() if name.removeprefix("PIP_").lower() not in known}


def reason(output: str) -> str:
    """Return what failed and what to do about it, in pip's output as a user can read it."""
    if "No space left on device" in output:
        return "the disk is full"
    if "DO NOT MATCH THE HASHES" in output:
        return "a package is not the one that was requested (its hash differs)"
    connection = "\n".join(_CONNECTION.findall(output))
    for pattern, cause in _CAUSES:
        if re.search(pattern, connection):
            return f"the package index cannot be reached ({cause}): {_NETWORK}"
    if unknown := _UNKNOWN.search(output):
        return f"the package index has no {unknown[1]} for this Python: {_NETWORK}"
    errors: list[str] = _ERROR.findall(output)
    return errors[-1] if errors else "pip failed"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
