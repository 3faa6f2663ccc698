"""The copies of model files on other nodes: made for loads, looked for when a node joins, removed with their models.

One job on the receiving node for each set of files, whatever number of loads waits for it. A load that is cancelled does not end the
copy. The files come from the head, and from other nodes that have them, and else from where the model was downloaded.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Final

from protocol.failures import Code, Failure
from protocol.messages.model_files import CheckpointSource, StartRemoval
from protocol.messages.model_transfer import (
    FilesPresent,
    SharedFile,
    StartFileTransfer,
    TransferFailed,
    TransferFile,
    TransferProgress,
    UseSenders,
)
from protocol.models.nodes import HEAD
from protocol.models.recipes import ModelSpec
from protocol.runtime import logs
from protocol.runtime.loop import Loop
from supervisor.bus.sockets import SupervisorBus
from supervisor.models.registry import ModelRegistry
from supervisor.node_files.file_lookups import MODULE, FileLookups
from supervisor.node_files.file_senders import FileSenders
from supervisor.node_files.node_files import FilesKey, NodeCopy, NodeFiles, files_key
from supervisor.node_files.spec_files import HeadFolders, transfer_files
from supervisor.runtime.decisions import Decisions
from supervisor.runtime.handler_table import Handler
from supervisor.runtime.jobs import Jobs, OnEnded
from supervisor.scheduler.scheduler import Scheduler

REMOVAL: Final = "workers.jobs.remove"

log = logs.get_logger()


class _Transfer:
    """One copy that is being made."""

    def __init__(self, node: str, order: StartFileTransfer) -> None:
        self.node, self.spec, self.files = node, order.spec, order.files
        self.senders, self.digests = order.senders, dict[str, str]()
        """What its job was told last."""
        self.distrusted = order.distrusted
        self.models = {order.spec.name}
        """The models whose loads wait for it."""
        self.reported: TransferProgress | None = None
        """What its job has sent last. One that has sent nothing may not have read its order."""
        self.failure: Failure | None = None
        self.complete = False


class FileTransfers:
    """The copies in progress."""

    def __init__(
        self,
        loop: Loop,
        jobs: Jobs,
        bus: SupervisorBus,
        models: ModelRegistry,
        node_files: NodeFiles,
        senders: FileSenders,
        folders: HeadFolders,
        scheduler: Scheduler,
        decisions: Decisions,
    ) -> None:
        """``node_files`` is told what arrives."""
        self._loop, self._jobs, self._bus, self._models = loop, jobs, bus, models
        self._node_files, self._senders, self._folders = node_files, senders, folders
        self._scheduler, self._decisions = scheduler, decisions
        self._transfers: dict[str, _Transfer] = {}
        """By job."""
        self._nodes: set[str] = set()
        senders.on_change = self._senders_changed
        self._lookups = FileLookups(
            loop, jobs, models, node_files, lambda spec: transfer_files(spec, folders, senders.key, [])
        )
        self._lookups.is_there, self._lookups.on_found = self._nodes.__contains__, decisions.reconcile

    def handlers(self) -> dict[type, Handler]:
        """Return the handlers of these messages."""
        return {
            TransferProgress: self._copied,
            FilesPresent: self._fetched,
            TransferFailed: self._failed,
            **self._lookups.handlers(),
            **self._senders.handlers(),
        }

    # Copies

    def fetch(self, model: str, spec: ModelSpec, node: str) -> None:
        """Bring the files of a model to a node, or join the copy that is being made."""
        running = self._of(node, files_key(spec))
        if running is not None:
            running.models.add(model)
            self._tell_progress(running)
            return
        downloads = self._downloads(spec)
        try:
            files = transfer_files(spec, self._folders, self._senders.key, downloads)
        except OSError as problem:
            reason = f"the files of {model} cannot be copied to {node}: one of them cannot be read ({problem.strerror})"
            failure = Failure(Code.MODEL_UNUSABLE, reason, model=model, detail=str(problem))
            self._loop.call_later(0.0, partial(self._report, {model}, node, failure))
            return
        senders = self._senders.addresses(self._sender_nodes(node, spec))
        order = StartFileTransfer(
            spec,
            files,
            senders,
            key=self._senders.key,
            downloads=downloads,
            distrusted=self._node_files.is_distrusted(node, spec),
        )
        job = self._jobs.start(MODULE, self._transfer_ended, order, node)
        transfer = self._transfers[job] = _Transfer(node, order)
        transfer.models = {model}
        log.info("copying model files", model=model, node=node, job=job, bytes=sum(file.size for file in files))
        self._share(job, transfer)

    def _of(self, node: str, key: FilesKey) -> _Transfer | None:
        running = self._transfers.values()
        return next((each for each in running if each.node == node and files_key(each.spec) == key), None)

    def _downloads(self, spec: ModelSpec) -> list[CheckpointSource]:
        """Return where a model can be downloaded from."""
        entry = self._models.find(spec.name)
        return entry.sources if entry is not None else []

    def _sender_nodes(self, node: str, spec: ModelSpec) -> list[str]:
        """Return the nodes to fetch from: the one first that sends the fewest copies now, the head before others."""
        busy = [each.senders[0].node for each in self._transfers.values() if each.senders]
        others = [other for other in self._node_files.nodes_with(spec) if other != node and other in self._nodes]
        return sorted([HEAD, *others], key=busy.count)

    def _share(self, job: str, transfer: _Transfer) -> None:
        """Let the nodes that have the files send them."""
        digested = [file.id for file in transfer.files if not (file.blob or file.sha256)]
        for node in self._sender_nodes(transfer.node, transfer.spec):
            paths = self._node_files.paths(node, transfer.spec)
            self._senders.share(node, job, shared_files(transfer.files, paths), digested)

    def _senders_changed(self) -> None:
        for job, transfer in self._transfers.items():
            self._update_senders(job, transfer)

    def _update_senders(self, job: str, transfer: _Transfer) -> None:
        """Tell a job from whom it can fetch, and which digests are known, if that has changed since it was told."""
        nodes = [sender.node for sender in transfer.senders]
        others = [node for node in self._sender_nodes(transfer.node, transfer.spec) if node not in nodes]
        senders = self._senders.addresses([*nodes, *others])
        digests = {**transfer.digests, **self._senders.digests(file.id for file in transfer.files)}
        if transfer.reported is not None and (senders, digests) != (transfer.senders, transfer.digests):
            transfer.senders, transfer.digests = senders, digests
            self._bus.send(job, UseSenders(senders, digests))

    def _copied(self, job: str, message: TransferProgress, _payload: bytes) -> None:
        transfer = self._transfers.get(job)
        if transfer is None:
            return
        transfer.reported = message
        self._update_senders(job, transfer)
        self._tell_progress(transfer)

    def _tell_progress(self, transfer: _Transfer) -> None:
        copied = transfer.reported
        if copied is not None:
            for model in transfer.models:
                self._scheduler.files_copied(model, transfer.node, copied.done, copied.total)

    def _fetched(self, job: str, message: FilesPresent, _payload: bytes) -> None:
        transfer = self._transfers.get(job)
        if transfer is not None:
            self._node_files.found(transfer.node, transfer.spec, message.paths, message.found)
            if transfer.distrusted:
                self._node_files.trust(transfer.node, transfer.spec)
            transfer.complete = True
            for node in message.refused:
                log.error("a node has sent other bytes than those of the head", node=node, model=transfer.spec.name)
                if node != HEAD:
                    self._node_files.distrust(node, transfer.spec)
        self._jobs.dismiss(job)

    def _failed(self, job: str, message: TransferFailed, _payload: bytes) -> None:
        transfer = self._transfers.get(job)
        if transfer is not None:
            transfer.failure = message.failure
        self._jobs.dismiss(job)

    def _transfer_ended(self, job: str, why: str) -> None:
        transfer = self._transfers.pop(job)
        self._senders.ended(job)
        name, node = transfer.spec.name, transfer.node
        failure = transfer.failure
        if failure is None and not transfer.complete:
            reason = f"copying the files of {name} to {node} was interrupted ({why})"
            failure = Failure(Code.DOWNLOAD_FAILED, reason, model=name)
        if failure is not None:
            log.warning("model files not copied", model=name, node=node, reason=failure.message, detail=failure.detail)
        else:
            log.info("model files copied", model=name, node=node)
        self._report(transfer.models, node, failure)

    def _report(self, models: Iterable[str], node: str, failure: Failure | None) -> None:
        for model in models:
            self._scheduler.files_fetched(model, node, failure, self._loop.now())
        self._decisions.reconcile()

    # Nodes

    def node_joined(self, node: str) -> None:
        """Look for the files of all models on a node: some may be there from before, or in a shared folder."""
        if node != HEAD and node not in self._nodes:
            self._nodes.add(node)
            self._lookups.begin(node)

    def node_left(self, node: str) -> None:
        """Forget a node. Its jobs end by themselves."""
        self._nodes.discard(node)
        self._node_files.node_left(node)
        self._senders.node_left(node)

    def where(self) -> Mapping[str, list[str]] | None:
        """Return model → the other nodes that have its files; None while the server has only its head."""
        return self._node_files.by_model() if self._nodes else None

    # Removal

    def remove(self, model: str, files: Iterable[str]) -> None:
        """Remove the copies of a deleted model on all nodes, and the prompt caches that these keep. ``files``: what was removed on the head.

        A copy that is being made ends.
        """
        removed = set(files)
        for job in [job for job, transfer in self._transfers.items() if transfer.models == {model}]:
            self._jobs.kill(job)
        copies = self._node_files.take(model)
        for node in sorted(self._nodes):
            order = removal_on_node(model, removed, copies.get(node, []))
            self._jobs.start(REMOVAL, self._removal_ended, order, node)

    def _removal_ended(self, job: str, why: str) -> None:
        log.debug("a job that removes model files has ended", job=job, reason=why)

    # Another supervisor's jobs

    def take_over(self, job: str, order: StartFileTransfer) -> OnEnded:
        """Take over a copy that an earlier supervisor began."""
        self._senders.key = order.key
        transfer = self._transfers[job] = _Transfer(self._jobs.node_of(job), order)
        self._loop.call_later(0.0, partial(self._share_taken_over, job, transfer))
        return self._transfer_ended

    def _share_taken_over(self, job: str, transfer: _Transfer) -> None:
        """Go on to send its files: the senders were taken over meanwhile."""
        if job in self._transfers:
            self._share(job, transfer)


def shared_files(files: Iterable[TransferFile], paths: Mapping[str, str]) -> list[SharedFile]:
    """Return the files as a node sends them. ``paths``: path on the head → path on the node; empty for the head."""
    return [SharedFile(file.id, paths.get(file.path, file.path), file.size, file.mtime_ns) for file in files]


def removal_on_node(model: str, removed: Collection[str], copies: Iterable[NodeCopy]) -> StartRemoval:
    """Return the order to remove the copies of files that were removed on the head. Files in folders of others stay."""
    found = {
        path: on_head
        for copy in copies
        for on_head, path in copy.paths.items()
        if on_head in removed and path not in copy.shared
    }
    repositories = {path.partition("/snapshots/")[0] for path in found if "/snapshots/" in path}
    return StartRemoval(
        model, sorted(found), sorted(each for each in repositories if Path(each).name.startswith("models--"))
    )
