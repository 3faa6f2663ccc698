"""The programs that themselves fetch and keep the models of their recipe."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from protocol.models.checkpoints import TagCheckpoint
from workers.jobs import flm
from workers.jobs.progress import DownloadProgress


class ModelProgram(NamedTuple):
    """One program."""

    title: str
    """Its name in messages."""
    action: str
    """A command that explains a problem."""
    fetch: Callable[[TagCheckpoint, str, DownloadProgress], int]
    """Fetches a model, notes it in the cache directory, returns the number of files; raises ``SourceError``."""
    remove: Callable[[str], str]
    """Removes the model with a tag; returns why it did not, or an empty text."""
    version: Callable[[], str]
    """Returns the version, or an empty text; raises ``ToolError``."""
    problem: Callable[[], str]
    """Returns why it cannot run models here, or an empty text; raises ``ToolError``."""


PROGRAMS: Final = {
    flm.PROGRAM: ModelProgram("FastFlowLM", "flm validate", flm.fetch, flm.remove, flm.version, flm.problem),
}
"""Scheme of its checkpoints (``SCHEME:TAG``) → program."""
