"""The way to a package index from this machine, for a pip in another root: variables, and the files that they name."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

FILES = ("/etc/resolv.conf", "/etc/hosts")
_NETWORK = re.compile(r"(?:https?|all|no)_proxy|SSL_CERT_(?:FILE|DIR)|REQUESTS_CA_BUNDLE|CURL_CA_BUNDLE", re.IGNORECASE)
_HOST_ONLY = frozenset({"user", "target", "prefix", "root", "require-virtualenv", "python", "log", "cache-dir"})
"""Options about where pip puts files on this machine, not about where they come from."""


class Reach(NamedTuple):
    """What another root needs to reach the index."""

    environment: dict[str, str]
    paths: list[str]
    """Files and folders of this machine that must also be there, under the same names."""


def of_host() -> Reach:
    """Return how this machine is configured, by pip's files and by variables."""
    command = [sys.executable, "-m", "pip", "config", "list"]
    listed = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=False).stdout
    return reach(listed, os.environ, lambda path: Path(path).exists())


def reach(listed: str, environment: Mapping[str, str], exists: Callable[[str], bool]) -> Reach:
    """Return the same from the output of ``pip config list`` and a machine's variables."""
    files: dict[str, str] = {}
    variables: dict[str, str] = {}
    for line in listed.splitlines():
        key, _, value = line.partition("=")
        section, _, option = key.rpartition(".")
        if section in ("global", "install", ":env:") and option not in _HOST_ONLY:
            (variables if section == ":env:" else files)[option] = ast.literal_eval(value)
    chosen = {f"PIP_{option.replace('-', '_').upper()}": value for option, value in {**files, **variables}.items()}
    chosen |= {name: value for name, value in environment.items() if _NETWORK.fullmatch(name)}
    words = [word for value in chosen.values() for word in value.split()]
    paths = {path for word in words if (path := _path(word))}
    return Reach(chosen, sorted(path for path in {*paths, *FILES} if exists(path)))


def write_config(file: Path, reach: Reach) -> dict[str, str]:
    """Write pip's configuration for a container; return what must be there: path on this machine → path in the container."""
    options = {name: value.split() for name, value in reach.environment.items() if name.startswith("PIP_")}
    named = [word.removeprefix("file://") for words in options.values() for word in words]
    paths = [path for path in reach.paths if any(f"{word}/".startswith(f"{path}/") for word in named)]
    # At its usual place, a file of the distribution would be in the way of a package that writes it.
    places = {path: f"/mnt/host{path}" if path.startswith("/etc/ssl/") else path for path in paths}
    lines = [
        f"{name.removeprefix('PIP_').lower().replace('_', '-')} = {' '.join(places.get(word, word) for word in words)}\n"
        for name, words in options.items()
    ]
    file.write_text("".join(["[global]\n", *lines]))
    return {**{os.path.realpath(path): place for path, place in places.items()}, str(file): "/etc/pip.conf"}


def _path(word: str) -> str:
    """Return the path that a word means, ``""`` if none. The pages of an index name files outside its own folder."""
    if word.startswith("file://"):
        path = Path(urlsplit(word).path)
        return str(path.parent if len(path.parts) > 3 else path)
    return word if word.startswith("/") else ""
