"""The voices beside a Kokoro model: their names, and their numbers. Only reads files, and no pickles.

A voice is 510 vectors of 256 floats, one for each length of a piece: a file ``voices/NAME.bin`` of bare numbers, or an array of an archive
``voices*.bin`` or ``voices*.npz`` of numpy. The folder may also be beside the model's folder (``onnx/``).
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Final

from workers.files.errors import BrokenError

VECTOR: Final = 256
"""Numbers of a vector."""
MAX_VOICES: Final = 1_000
_MAX_BYTES: Final = 4 * 1024 * 1024
_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
_ARRAY: Final = ".npy"


class Voices:
    """The voices of one model."""

    def __init__(self, model: Path) -> None:
        """List the voices beside the model's file; raises OSError, or :class:`BrokenError` for a broken archive."""
        self._places: dict[str, tuple[Path, str]] = {}
        """Name → its file, and the name in an archive."""
        for folder in (model.parent, model.parent.parent):
            for path in sorted(folder.glob("voices/*.bin")):
                self._add(path.stem, path, "")
            for path in sorted({*folder.glob("voices*.bin"), *folder.glob("voices*.npz")}):
                self._add_archive(path)
            if self._places:
                return

    def _add_archive(self, path: Path) -> None:
        import zipfile  # noqa: PLC0415 - the supervisor imports this module, and reads no archive

        try:
            with zipfile.ZipFile(path) as archive:
                names = [each.filename for each in archive.infolist() if each.file_size <= _MAX_BYTES]
        except (zipfile.BadZipFile, NotImplementedError):
            raise BrokenError(f"{path.name} is not an archive of voices") from None
        for name in sorted(names):
            if name.endswith(_ARRAY):
                self._add(name.removesuffix(_ARRAY), path, name.removesuffix(_ARRAY))

    def _add(self, name: str, path: Path, member: str) -> None:
        if _NAME.fullmatch(name) and len(self._places) < MAX_VOICES:
            self._places.setdefault(name, (path, member))

    @property
    def names(self) -> list[str]:
        """Their names, in order."""
        return sorted(self._places)

    @property
    def size(self) -> int:
        """Bytes of their files."""
        return sum(path.stat().st_size for path in {path for path, _ in self._places.values()})

    def read(self, name: str) -> Any:
        """Return the vectors of a voice; raises :class:`BrokenError`, OSError, or KeyError for an unknown name."""
        import zipfile  # noqa: PLC0415 - as above

        import numpy as np  # noqa: PLC0415 - the worker lists voices without it

        path, member = self._places[name]
        if not member:
            if path.stat().st_size > _MAX_BYTES:
                raise BrokenError(f"{path.name} is too large for a voice")
            vectors = np.fromfile(path, dtype="<f4")
        else:
            try:
                with np.load(path, allow_pickle=False) as archive:
                    vectors = archive[member].astype("<f4").ravel()
            except (ValueError, KeyError, EOFError, zipfile.BadZipFile):
                raise BrokenError(f"{path.name} has a broken voice {name}") from None
        if not vectors.size or vectors.size % VECTOR or not np.isfinite(vectors).all():
            raise BrokenError(f"the voice {name} is broken: it is not a list of {VECTOR} numbers")
        return vectors.reshape(-1, VECTOR)
