"""What one supervisor leaves to the next one.

Whether the server is drained, and which of its nodes, which downloads are paused, which models failed at the start, how engines died, which
nodes have agents. It is memory of which the keeper holds the descriptor, so it ends with the server. Each change makes new memory and lets
the keeper hold that: a supervisor that dies meanwhile leaves the former state, whole.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import msgspec

from protocol.failures import Code, Failure, printable
from protocol.messages.calls import Progress
from protocol.messages.health import EngineDeath, EngineDeaths
from protocol.messages.model_files import Registration
from protocol.messages.readiness import ServerReadiness
from protocol.runtime import logs

MAX_DEATHS: Final = 5
"""Deaths of a model's engines that are kept."""
MAX_MODELS: Final = 64
"""Models whose deaths are kept."""
MAX_PAUSED: Final = 64
"""Downloads that may be paused."""
MAX_DRAINED_NODES: Final = 4096
"""Nodes that may be drained."""
_REASON_LENGTH: Final = 300
_READ_BYTES: Final = 4 * 1024 * 1024
"""More than a record can have."""

log = logs.get_logger()


class Death(msgspec.Struct):
    """How an engine died, or its worker. ``at``: by the monotonic clock of the keeper's machine, which all its supervisors share."""

    at: float
    code: str
    reason: str


class Deaths(msgspec.Struct):
    """The deaths of a model's engines; ``last``: the latest, the newest first."""

    count: int = 0
    last: list[Death] = []


class PausedDownload(msgspec.Struct, frozen=True, omit_defaults=True):
    """A download that an operator has paused."""

    registration: Registration | None = None
    """What its model is registered as when it is complete."""
    last: Progress | None = None
    """How far it had come."""
    completed_bytes: int = 0
    """The sizes of the files before the present one."""


class _Kept(msgspec.Struct, omit_defaults=True):
    """The record, in a form that every release understands: only new fields with defaults may be added."""

    drained: bool = False
    failed_at_start: dict[str, Failure] = {}
    """Registered name → why it could not be loaded at the start, until it is loaded."""
    paused_downloads: dict[str, PausedDownload] = {}
    """Registered name, or that of a model that is not registered yet → its download."""
    deaths: dict[str, Deaths] = {}
    """Registered name → how its engines died; the model whose engine died last is the last one."""
    drained_nodes: dict[str, float] = {}
    """Node → when an operator drained it, by the same clock as deaths."""
    remote_gateways: list[str] = []
    """Ids of the gateways on other nodes."""
    agents: dict[str, str] = {}
    """Node → its agent, which the next supervisor is to expect."""
    silent_nodes: dict[str, float] = {}
    """Node whose agent does not answer → when it last did, by the same clock as deaths."""


class ServerRecord:
    """The record. Until :meth:`keep`, nothing outlives this process."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """Know nothing yet. ``clock``: returns the monotonic time of this machine."""
        self._clock = clock
        self._kept = _Kept()
        self._hold: Callable[[int], None] = lambda _: None
        self.ready = False
        """Whether each model for the start was loaded or has failed for good. The keeper holds this by itself."""

    def keep(self, descriptor: int, hold: Callable[[int], None]) -> None:
        """Take over an earlier supervisor's record (-1: there is none), and let the keeper ``hold`` later ones."""
        self._hold = hold
        if descriptor < 0:
            return
        try:
            self._kept = msgspec.msgpack.decode(os.pread(descriptor, _READ_BYTES, 0), type=_Kept)
        except msgspec.MsgspecError as problem:  # another release has written it
            log.warning("the last supervisor's record cannot be read: a drain has ended", reason=str(problem))
        finally:
            os.close(descriptor)

    @property
    def readiness(self) -> ServerReadiness:
        """What the gateways must know."""
        return ServerReadiness(self.ready, self._kept.drained)

    @property
    def drained(self) -> bool:
        """Whether an operator has drained the server."""
        return self._kept.drained

    def set_drained(self, drained: bool) -> None:
        """Note whether the server is drained."""
        self._kept.drained = drained
        self._write()

    @property
    def drained_nodes(self) -> dict[str, float]:
        """How many seconds ago an operator drained which node."""
        now = self._clock()
        return {name: now - at for name, at in self._kept.drained_nodes.items()}

    def set_node_drained(self, node: str, drained: bool) -> None:
        """Note whether a node is drained; raises ``conflict`` if too many are."""
        nodes = self._kept.drained_nodes
        if not drained:
            nodes.pop(node, None)
        elif node not in nodes:
            if len(nodes) >= MAX_DRAINED_NODES:
                reason = f"{MAX_DRAINED_NODES} nodes are drained already: undrain one"
                raise Failure(Code.CONFLICT, reason, param="name").raised()
            nodes[node] = self._clock()
        self._write()

    @property
    def remote_gateways(self) -> Sequence[str]:
        """The gateways on other nodes, by their ids."""
        return self._kept.remote_gateways

    def set_remote_gateways(self, gateways: list[str]) -> None:
        """Note which gateways there are on other nodes."""
        if gateways != self._kept.remote_gateways:
            self._kept.remote_gateways = gateways
            self._write()

    @property
    def agents(self) -> Mapping[str, str]:
        """Node → its agent, of all nodes but the head."""
        return self._kept.agents

    def set_agents(self, agents: dict[str, str]) -> None:
        """Note which nodes have which agents."""
        if agents != self._kept.agents:
            self._kept.agents = agents
            self._write()

    @property
    def silent_nodes(self) -> dict[str, float]:
        """How many seconds ago those agents that do not answer last did, by node."""
        now = self._clock()
        return {name: now - at for name, at in self._kept.silent_nodes.items()}

    def set_silent_nodes(self, seconds: Mapping[str, float]) -> None:
        """Note which agents do not answer. The times are only written if other ones do than before."""
        if seconds.keys() != self._kept.silent_nodes.keys():
            now = self._clock()
            self._kept.silent_nodes = {name: now - silent for name, silent in seconds.items()}
            self._write()

    @property
    def failed_at_start(self) -> dict[str, Failure]:
        """Models that could not be loaded at the start, and have not been loaded since, by their names."""
        return dict(self._kept.failed_at_start)

    def start_failed(self, model: str, failure: Failure) -> None:
        """Note that a model cannot be loaded at the start."""
        self._kept.failed_at_start[model] = failure
        self._write()

    def loaded(self, model: str) -> None:
        """Note that a model was loaded."""
        if self._kept.failed_at_start.pop(model, None) is not None:
            self._write()

    @property
    def paused_downloads(self) -> Mapping[str, PausedDownload]:
        """The downloads that an operator has paused, by model."""
        return self._kept.paused_downloads

    def download_paused(self, model: str, download: PausedDownload) -> None:
        """Note that a download is paused; raises ``conflict`` if too many are."""
        paused = self._kept.paused_downloads
        if len(paused) >= MAX_PAUSED and model not in paused:
            reason = f"{MAX_PAUSED} downloads are paused already: resume one, or delete its model"
            raise Failure(Code.CONFLICT, reason, model=model).raised()
        paused[model] = download
        self._write()

    def download_resumed(self, model: str) -> None:
        """Note that a download goes on, or that its model was deleted."""
        if self._kept.paused_downloads.pop(model, None) is not None:
            self._write()

    @property
    def deaths_by_model(self) -> Mapping[str, Deaths]:
        """The same by registered name, as it is kept."""
        return self._kept.deaths

    @property
    def deaths(self) -> list[EngineDeaths]:
        """How engines died, by model, the one whose engine died last first."""
        now = self._clock()
        return [
            EngineDeaths(
                model, deaths.count, [EngineDeath(now - each.at, each.code, each.reason) for each in deaths.last]
            )
            for model, deaths in reversed(self._kept.deaths.items())
        ]

    def engine_died(self, model: str, failure: Failure) -> None:
        """Note how an engine of a model died, or its worker."""
        deaths = self._kept.deaths
        before = deaths.pop(model, None) or Deaths()
        death = Death(self._clock(), failure.code.value, printable(failure.message, _REASON_LENGTH))
        deaths[model] = Deaths(before.count + 1, [death, *before.last][:MAX_DEATHS])
        while len(deaths) > MAX_MODELS:
            del deaths[next(iter(deaths))]
        self._write()

    def _write(self) -> None:
        try:
            descriptor = os.memfd_create("server_record", os.MFD_CLOEXEC)
        except OSError as problem:
            log.warning("the next supervisor will not know of this change", reason=str(problem))
            return
        try:
            os.write(descriptor, msgspec.msgpack.encode(self._kept))
            self._hold(descriptor)
        except OSError as problem:
            log.warning("the next supervisor will not know of this change", reason=str(problem))
        finally:
            os.close(descriptor)
