"""The progress of a download: written by the thread that downloads, read by the loop that reports it."""

from __future__ import annotations

from typing import NamedTuple


class ProgressSnapshot(NamedTuple):
    """Progress at one moment. Sizes in bytes, 0 for an unknown total."""

    file: str = ""
    file_index: int = 0
    total_files: int = 0
    bytes_downloaded: int = 0
    bytes_total: int = 0


class DownloadProgress:
    """The file that is being downloaded. One attribute holds all values, so a reader never sees half a change."""

    def __init__(self) -> None:
        """Nothing has begun."""
        self.reading = ProgressSnapshot()
        self.place: tuple[int, int] | None = None
        """The number of the present file, and of all files, if the code that downloads this file does not know the others."""

    def begin(self, file: str, index: int, files: int, total: int, done: int = 0) -> None:
        """Begin the next file, of which ``done`` bytes are already downloaded."""
        self.reading = ProgressSnapshot(file, *(self.place or (index, files)), done, total)

    def at(self, done: int) -> None:
        """Set the downloaded bytes of the file."""
        total = self.reading.bytes_total
        self.reading = self.reading._replace(bytes_downloaded=min(done, total) if total else done)

    def end(self) -> None:
        """The file is complete."""
        whole = self.reading.bytes_total or self.reading.bytes_downloaded
        self.reading = self.reading._replace(bytes_downloaded=whole, bytes_total=whole)


class SummedProgress(DownloadProgress):
    """The same, with the bytes of all files together."""

    def __init__(self) -> None:
        """Nothing has begun."""
        super().__init__()
        self._before = 0

    def begin(self, file: str, index: int, files: int, total: int, done: int = 0) -> None:
        """Begin the next file, after those that have begun before."""
        self._before += self.reading.bytes_downloaded
        super().begin(file, index, files, total, done)

    @property
    def bytes_downloaded(self) -> int:
        """Those of all files."""
        return self._before + self.reading.bytes_downloaded
