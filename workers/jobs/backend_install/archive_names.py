"""The names of a release's archive: in messages, and for its partial file during the download."""

from __future__ import annotations

from urllib.parse import unquote, urlsplit

from protocol.messages.backend_installs import Archive


def name_of(url: str) -> str:
    """Return the file's name as messages show it."""
    return unquote(urlsplit(url).path).rsplit("/", 1)[-1] or "archive"


def partial_name(archive: Archive) -> str:
    """Return the name of the file that an archive is downloaded into."""
    return f".download-{archive.sha256}"
