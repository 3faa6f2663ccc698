"""A copy of the four packages in which a test changes release, protocol version or code, as ``pip install -U`` does."""

from __future__ import annotations

import contextlib
import importlib.util
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

from tests.support.server import ROOT

PACKAGES = ("protocol", "supervisor", "workers", "gateway")


class InstalledCode:
    """What is installed in a folder; a server with ``root=installed.folder`` runs it."""

    def __init__(self, folder: Path) -> None:
        """Install the present code into an empty folder."""
        self.folder = folder
        # With its byte code, which is valid for the copies, because compiling takes seconds. Another process may be writing some.
        unfinished = shutil.ignore_patterns("*.pyc.*")
        for package in PACKAGES:
            shutil.copytree(ROOT / package, folder / package, ignore=unfinished)

    def install(self, *, release: str = "", version: int = 0) -> None:
        """Install another release, or one with another version of the protocol: the files change while the server runs."""
        marker = self.folder / "protocol" / "__init__.py"
        text = marker.read_text()
        if release:
            text = re.sub(r"^RELEASE = .*", f'RELEASE = "{release}"', text, flags=re.MULTILINE)
        if version:
            text = re.sub(r"^VERSION = \d+", f"VERSION = {version}", text, flags=re.MULTILINE)
        self._write(marker, text)

    @contextlib.contextmanager
    def without(self, package: str) -> Iterator[None]:
        """Remove a package for a while, as during the installation of another release."""
        folder = self.folder / package
        hidden = folder.rename(self.folder / f"{package}.hidden")
        try:
            yield
        finally:
            hidden.rename(folder)

    def append(self, file: str, code: str) -> str:
        """Add code to the end of a file; return its former content, for :meth:`replace`."""
        former = (self.folder / file).read_text()
        self.replace(file, former + code)
        return former

    def replace(self, file: str, text: str) -> None:
        """Give a file another content."""
        self._write(self.folder / file, text)

    def _write(self, path: Path, text: str) -> None:
        """Replace a file in one step, because a process of the server may import it at this moment. Its byte code is deleted,

        because Python may not notice a change within the same second.
        """
        draft = path.with_name(f"{path.name}.draft")
        draft.write_text(text)
        draft.replace(path)
        Path(importlib.util.cache_from_source(str(path))).unlink(missing_ok=True)
