"""Looks for the files of all models on a node that has joined: some may be there from before, or in a shared folder."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from itertools import islice
from typing import Final

from protocol.failures import LemonbusError
from protocol.messages.model_transfer import FilesFound, FindFiles, TransferFile
from protocol.models.recipes import ModelSpec
from protocol.runtime.loop import Loop
from supervisor.models.registry import ModelRegistry
from supervisor.node_files.node_files import NodeFiles
from supervisor.runtime.handler_table import Handler
from supervisor.runtime.jobs import Jobs

MODULE: Final = "workers.jobs.receive_files"
_MODELS_PER_STEP: Final = 8
"""How many models are looked up at a time: each takes some milliseconds."""


class FileLookups:
    """The lookups in progress."""

    def __init__(
        self,
        loop: Loop,
        jobs: Jobs,
        models: ModelRegistry,
        node_files: NodeFiles,
        files_of: Callable[[ModelSpec], list[TransferFile]],
    ) -> None:
        """``files_of`` returns the files of a model on the head; raises OSError. ``node_files`` is told what is found."""
        self._loop, self._jobs, self._models = loop, jobs, models
        self._node_files, self._files_of = node_files, files_of
        self.is_there: Callable[[str], bool] = lambda _node: True
        """Returns whether a node is in the server."""
        self.on_found: Callable[[], None] = lambda: None
        """Called when it is known what a node has."""
        self._looking: dict[str, dict[str, ModelSpec]] = {}
        """Job that looks for files → the models, by name."""

    def handlers(self) -> dict[type, Handler]:
        """Return the handlers of these messages."""
        return {FilesFound: self._found}

    def begin(self, node: str) -> None:
        """Look for the files of all models on a node."""
        names = (entry.id for entry in self._models.entries(show_all=False))
        self._collect(node, names, {}, {})

    def _collect(
        self, node: str, names: Iterable[str], specs: dict[str, ModelSpec], wanted: dict[str, list[TransferFile]]
    ) -> None:
        """Look up what is on the head, a few models at a time; then let a job on the node look for it there."""
        names = iter(names)
        some = list(islice(names, _MODELS_PER_STEP))
        for name in some:
            try:
                spec = self._models.spec(name, {})
                files = self._files_of(spec)
            except (LemonbusError, OSError):
                continue  # it cannot be loaded
            if files:
                specs[name], wanted[name] = spec, files
        if not self.is_there(node):
            return
        if some:
            self._loop.call_later(0.0, partial(self._collect, node, names, specs, wanted))
        elif wanted:
            job = self._jobs.start(MODULE, self._look_ended, FindFiles(wanted), node)
            self._looking[job] = specs

    def _found(self, job: str, message: FilesFound, _payload: bytes) -> None:
        specs = self._looking.get(job, {})
        for each in message.models:
            if each.model in specs:
                self._node_files.found(self._jobs.node_of(job), specs[each.model], each.paths, each.found)
        self._jobs.dismiss(job)
        self.on_found()

    def _look_ended(self, job: str, _why: str) -> None:
        self._looking.pop(job, None)
