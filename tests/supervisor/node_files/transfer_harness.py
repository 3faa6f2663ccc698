"""The parts of a supervisor that copies of model files use, without a process and without a clock."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec

from protocol.failures import Failure
from protocol.messages.model_files import CheckpointSource
from protocol.messages.model_transfer import (
    FileSender,
    FilesPresent,
    ShareFiles,
    SharingFiles,
    StartFileTransfer,
    TransferProgress,
    UseSenders,
)
from protocol.models.nodes import HEAD
from protocol.models.recipes import ModelSpec
from supervisor.node_files import file_lookups, file_senders
from supervisor.node_files.file_senders import FileSenders
from supervisor.node_files.file_transfers import FileTransfers
from supervisor.node_files.node_files import NodeFiles
from supervisor.node_files.spec_files import HeadFolders
from supervisor.runtime.jobs import OnEnded


class StartedJob:
    """A job that was started, and has not ended."""

    def __init__(self, name: str, module: str, ended: OnEnded, order: Any, node: str) -> None:
        self.name, self.module, self.ended, self.order, self.node = name, module, ended, order, node


class TransferHarness:
    """Head and nodes; files of models are real, in a folder of the head."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.now, self.closing = folder, 1000.0, False
        self.jobs: dict[str, StartedJob] = {}
        """Those that run, by name."""
        self.dismissed: list[str] = []
        self.sent: list[tuple[str, msgspec.Struct]] = []
        self.fetched: list[tuple[str, str, Failure | None]] = []
        """What the scheduler was told."""
        self.copied: list[tuple[str, str, int, int]] = []
        self.specs: dict[str, ModelSpec] = {}
        self.downloads: dict[str, list[CheckpointSource]] = {}
        self.node_files = NodeFiles()
        self._timers: list[tuple[float, Callable[[], None]]] = []
        self._loop: Any = SimpleNamespace(
            now=lambda: self.now, call_later=lambda seconds, call: self._timers.append((self.now + seconds, call))
        )
        self._bus: Any = SimpleNamespace(send=lambda peer, message: self.sent.append((peer, message)))
        self._jobs: Any = SimpleNamespace(
            start=self._start,
            kill=lambda job: self.end(job, "SIGKILL"),
            dismiss=self.dismissed.append,
            node_of=lambda job: self.jobs[job].node,
        )
        self.begin()

    def begin(self) -> None:
        """Begin as another supervisor: it knows nothing of what runs."""
        models: Any = SimpleNamespace(
            entries=lambda show_all: [SimpleNamespace(id=name) for name in self.specs] if not show_all else [],
            spec=lambda name, _asked: self.specs[name],
            find=lambda name: SimpleNamespace(sources=self.downloads.get(name, [])),
        )
        scheduler: Any = SimpleNamespace(
            files_fetched=lambda model, node, failure, _now: self.fetched.append((model, node, failure)),
            files_copied=lambda *orders: self.copied.append(orders),
        )
        self.senders = FileSenders(self._loop, self._jobs, self._bus, lambda: self.closing)
        self.transfers = FileTransfers(
            loop=self._loop,
            jobs=self._jobs,
            bus=self._bus,
            models=models,
            node_files=self.node_files,
            senders=self.senders,
            folders=HeadFolders(self.folder / "hub", self.folder / "cache"),
            scheduler=scheduler,
            decisions=SimpleNamespace(reconcile=lambda: None),  # type: ignore[arg-type]
        )

    def _start(self, module: str, ended: OnEnded, order: msgspec.Struct, node: str = HEAD) -> str:
        name = f"j{len(self.jobs) + len(self.dismissed) + len(self.sent) + 1}"
        while name in self.jobs:
            name += "x"
        self.jobs[name] = StartedJob(name, module, ended, order, node)
        return name

    def spec(self, name: str, size: int = 10) -> ModelSpec:
        """Make a model with one file."""
        path = self.folder / f"{name}.gguf"
        path.write_bytes(b"x" * size)
        self.specs[name] = ModelSpec(name, name, "llamacpp", "cpu", "llm", str(path), size=size)
        return self.specs[name]

    def running(self, module: str, node: str = "") -> list[StartedJob]:
        return [job for job in self.jobs.values() if job.module == module and node in ("", job.node)]

    def fetching(self, node: str = "") -> StartedJob:
        (job,) = self.running(file_lookups.MODULE, node)
        return job

    def sharing(self, node: str = HEAD) -> StartedJob:
        (job,) = self.running(file_senders.MODULE, node)
        return job

    def later(self, seconds: float = 0.0) -> None:
        """Let time pass."""
        self.now += seconds
        while due := [timer for timer in self._timers if timer[0] <= self.now]:
            self._timers = [timer for timer in self._timers if timer not in due]
            for _, call in due:
                call()

    def say(self, job: StartedJob, message: msgspec.Struct) -> None:
        """Let a job send something."""
        self.transfers.handlers()[type(message)](job.name, message, b"")

    def end(self, job: str, why: str = "exit 0") -> None:
        ended = self.jobs.pop(job)
        ended.ended(job, why)

    def share_at(self, address: str, node: str = HEAD, digests: dict[str, str] | None = None) -> None:
        self.say(self.sharing(node), SharingFiles(address, digests or {}))

    def last_senders(self, job: StartedJob) -> UseSenders:
        """Return what a job that fetches was told last."""
        order: StartFileTransfer = job.order
        orders = [message for peer, message in self.sent if peer == job.name and isinstance(message, UseSenders)]
        return (orders or [UseSenders(order.senders)])[-1]

    def senders_of(self, job: StartedJob) -> list[FileSender]:
        """Return where a job fetches from, as it was told last."""
        return self.last_senders(job).senders

    def shared(self, node: str = HEAD) -> dict[str, str]:
        """Return the files that a node may send, as its job was told last: id → path."""
        job = self.sharing(node)
        orders = [message for peer, message in self.sent if peer == job.name and isinstance(message, ShareFiles)]
        return {file.id: file.path for file in (orders or [job.order])[-1].files}

    def report(self, job: StartedJob, done: int = 0, total: int = 10) -> None:
        self.say(job, TransferProgress(job.order.spec.name, done, total))


AT_HEAD = FileSender(HEAD, "10.0.0.1:7")


def fetched(harness: TransferHarness, job: StartedJob, place: str = "/n") -> None:
    """Let a job report that everything is there, and end."""
    paths = {file.path: f"{place}/{Path(file.path).name}" for file in job.order.files}
    harness.say(job, FilesPresent(job.order.spec.name, paths))
    harness.end(job.name)
