"""The jobs that send model files to other nodes: one on each node that is asked for some, as long as it is.

All have the same key. A job that ends is replaced, at another address. The one on the head also computes the sha256 of files.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Final

from protocol.messages.model_transfer import FileSender, SharedFile, ShareFiles, SharingFailed, SharingFiles
from protocol.models.nodes import HEAD
from protocol.runtime import logs
from protocol.runtime.loop import Loop
from supervisor.bus.sockets import SupervisorBus
from supervisor.runtime.handler_table import Handler
from supervisor.runtime.jobs import Jobs, OnEnded

MODULE: Final = "workers.jobs.share_files"
IDLE_S: Final = 60.0
"""How long a sender stays without a file to send."""
FIRST_PAUSE_S: Final = 0.5
LONGEST_PAUSE_S: Final = 60.0

log = logs.get_logger()


class _Sender:
    """The sender of one node."""

    def __init__(self, job: str, sent: Iterable[SharedFile] = ()) -> None:
        self.job = job
        self.address = ""
        """Empty until its job has reported it."""
        self.sent = {file.id: file for file in sent}
        """The files that it was last told of."""
        self.digests: Mapping[str, str] = {}
        """Id → sha256, as it has reported them."""


class FileSenders:
    """Starts senders, and tells each which files it may send."""

    def __init__(self, loop: Loop, jobs: Jobs, bus: SupervisorBus, closing: Callable[[], bool]) -> None:
        """No sender runs. ``closing`` returns whether the server ends."""
        self._loop, self._jobs, self._bus, self._closing = loop, jobs, bus, closing
        self.key = secrets.token_hex(32)
        """What a receiver must have."""
        self.on_change: Callable[[], None] = lambda: None
        """Called when a sender has got an address, or has lost it, or has computed a digest."""
        self._senders: dict[str, _Sender] = {}
        """By node."""
        self._shared: dict[str, dict[str, list[SharedFile]]] = {}
        """Node → transfer → the files that it needs from there."""
        self._digested: dict[str, list[str]] = {}
        """Transfer → the files that it needs the sha256 of."""
        self._pauses: dict[str, float] = {}
        """Node → how long it waits for the next sender, since the last one got no address."""

    def handlers(self) -> dict[type, Handler]:
        """Return the handlers of these messages."""
        return {SharingFiles: self._sharing, SharingFailed: self._failed}

    def share(self, node: str, transfer: str, files: list[SharedFile], digested: list[str]) -> None:
        """Let a node send these files until the transfer has ended. ``digested``: those that it needs the sha256 of."""
        self._shared.setdefault(node, {})[transfer] = files
        self._digested[transfer] = digested
        if node in self._senders:
            self._tell(self._senders[node], node)
        else:
            self._start(node)

    def ended(self, transfer: str) -> None:
        """A transfer has ended: its files are not sent any more, unless another one needs them."""
        self._digested.pop(transfer, None)
        for node, shared in self._shared.items():
            if shared.pop(transfer, None) is not None and node in self._senders:
                self._tell(self._senders[node], node)
                if not shared:
                    self._loop.call_later(IDLE_S, partial(self._end_if_idle, node))

    def addresses(self, nodes: Iterable[str]) -> list[FileSender]:
        """Return those of these nodes that can send now, in their order."""
        found = ((node, self._senders.get(node)) for node in nodes)
        return [FileSender(node, sender.address) for node, sender in found if sender is not None and sender.address]

    def digests(self, files: Iterable[str]) -> dict[str, str]:
        """Return the sha256 of those of these files that the head has computed."""
        known = self._senders[HEAD].digests if HEAD in self._senders else {}
        return {each: known[each] for each in files if each in known}

    def node_left(self, node: str) -> None:
        """A node is gone, with its job."""
        self._shared.pop(node, None)
        self._pauses.pop(node, None)

    def take_over(self, job: str, order: ShareFiles) -> OnEnded | None:
        """Take over the sender of an earlier supervisor, which will report its address; None if there is another one."""
        node = self._jobs.node_of(job)
        if node in self._senders:
            return None
        self.key = order.key
        self._senders[node] = _Sender(job, order.files)
        self._loop.call_later(IDLE_S, partial(self._end_if_idle, node))
        return self._ended

    def _start(self, node: str) -> None:
        if node in self._senders or not self._shared.get(node) or self._closing():
            return
        files = self._files(node)
        self._senders[node] = _Sender(
            self._jobs.start(MODULE, self._ended, self._order(node, files), node), files.values()
        )

    def _order(self, node: str, files: Mapping[str, SharedFile]) -> ShareFiles:
        digested = {each for transfer in self._digested.values() for each in transfer} if node == HEAD else ()
        return ShareFiles(self.key, list(files.values()), sorted(digested))

    def _files(self, node: str) -> dict[str, SharedFile]:
        return {file.id: file for files in self._shared.get(node, {}).values() for file in files}

    def _tell(self, sender: _Sender, node: str) -> None:
        """Tell a sender its files. One that has no address yet has its order still to read, and is told then."""
        files = self._files(node)
        if sender.address and files != sender.sent:
            sender.sent = files
            self._bus.send(sender.job, self._order(node, files))

    def _of_job(self, job: str) -> tuple[str, _Sender] | None:
        return next(((node, sender) for node, sender in self._senders.items() if sender.job == job), None)

    def _sharing(self, job: str, message: SharingFiles, _payload: bytes) -> None:
        found = self._of_job(job)
        if found is not None:
            node, sender = found
            sender.address, sender.digests = message.address, message.digests
            self._pauses.pop(node, None)
            self._tell(sender, node)
            self.on_change()

    def _failed(self, job: str, message: SharingFailed, _payload: bytes) -> None:
        found = self._of_job(job)
        if found is not None:
            log.error("model files cannot be sent", node=found[0], reason=message.why)
        self._jobs.dismiss(job)

    def _end_if_idle(self, node: str) -> None:
        if node in self._senders and not self._shared.get(node):
            self._jobs.kill(self._senders[node].job)

    def _ended(self, job: str, why: str) -> None:
        found = self._of_job(job)
        if found is None:
            return
        node, _ = found
        del self._senders[node]
        if self._shared.get(node) and not self._closing():
            pause = self._pauses.get(node, FIRST_PAUSE_S)
            self._pauses[node] = min(LONGEST_PAUSE_S, 2 * pause)
            log.info("model files are sent by another process", node=node, reason=why, pause_s=pause)
            self._loop.call_later(pause, partial(self._start, node))
        self.on_change()
