"""What answers the peers' Hello, pings them, and carries out what follows from their end."""

from __future__ import annotations

from functools import partial

from supervisor.handlers.models.sampling_defaults import SamplingDefaultsCalls
from supervisor.handlers.peers import PeerMessages
from supervisor.lifecycle.components import Components
from supervisor.peers.handshake import Handshake
from supervisor.peers.monitor import PeerMonitor
from supervisor.peers.other_versions import OtherVersions
from supervisor.peers.peer_exit import GatewayEnds, WorkerEnds
from supervisor.processes import stale_files


class PeerComponents:
    """Made of the components of a supervisor. From then on, other nodes take part."""

    def __init__(self, components: Components, sampling: SamplingDefaultsCalls) -> None:
        """``sampling`` sends a worker the sampling defaults that are set."""
        bus, peers, scheduler = components.bus, components.peers, components.scheduler
        self.other_versions = OtherVersions(
            loop=components.loop,
            bus=bus,
            gateway=components.gateway,
            jobs=components.jobs,
            scheduler=scheduler,
            decisions=components.decisions,
            messages=components.messages,
            resolve=components.targets.resolve,
            internal_calls=components.internal_calls,
        )
        self.gateway_ends = GatewayEnds(
            bus=bus,
            barrier=components.barrier,
            peers=peers,
            is_planned=components.gateway_end_is_planned,
            scheduler=scheduler,
            decisions=components.decisions,
            admission=components.admission,
            downloads=components.download_registry,
            responses=components.responses,
            retained_log=components.retained_log,
            remove_files=partial(stale_files.remove_bodies, components.process_context),
        )
        ends = WorkerEnds(
            loop=components.loop,
            bus=bus,
            barrier=components.barrier,
            peers=peers,
            scheduler=scheduler,
            decisions=components.decisions,
            messages=components.messages,
            grant_notices=components.grant_notices,
            other_versions=self.other_versions,
        )
        components.workers.on_ended = ends.gone
        self.handshake = Handshake(
            settings=components.settings,
            process_context=components.process_context,
            loop=components.loop,
            bus=bus,
            peers=peers,
            record=components.record,
            send_sampling_defaults=sampling.send,
        )
        components.nodes.connect(components, self.handshake)
        self.monitor = PeerMonitor(
            loop=components.loop,
            bus=bus,
            peers=peers,
            barrier=components.barrier,
            errors=components.errors,
            kill_process=components.kill_process,
            running_tokens=components.running_tokens,
        )
        self.messages = PeerMessages(
            loop=components.loop,
            bus=bus,
            peers=peers,
            workers=components.workers,
            gateway=components.gateway,
            jobs=components.jobs,
            scheduler=scheduler,
            admission=components.admission,
            accounting=components.accounting,
            gateway_ends=self.gateway_ends,
            other_versions=self.other_versions,
            handshake=self.handshake,
            monitor=self.monitor,
            agents=components.nodes.agents,
            other_gateways=components.nodes.gateways,
        )
