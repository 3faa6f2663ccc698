"""How far a download is: written by the thread that fetches, read by the loop that tells."""

from __future__ import annotations

from typing import NamedTuple


class ProgressSnapshot(NamedTuple):
    """One look at the gauge. Sizes in bytes, 0 for a total that is not known."""

    file: str = ""
    file_index: int = 0
    total_files: int = 0
    bytes_downloaded: int = 0
    bytes_total: int = 0


class DownloadProgress:
    """The file that is being fetched. One attribute holds it all, so that a reader never sees half a change."""

    def __init__(self) -> None:
        """Nothing has begun."""
        self.reading = ProgressSnapshot()

    def begin(self, file: str, index: int, files: int, total: int, done: int = 0) -> None:
        """Another file begins, ``done`` bytes of which are there already."""
        self.reading = ProgressSnapshot(file, index, files, done, total)

    def at(self, done: int) -> None:
        """So many bytes of the file are there."""
        total = self.reading.bytes_total
        self.reading = self.reading._replace(bytes_downloaded=min(done, total) if total else done)

    def end(self) -> None:
        """The file is there, whole."""
        whole = self.reading.bytes_total or self.reading.bytes_downloaded
        self.reading = self.reading._replace(bytes_downloaded=whole, bytes_total=whole)
