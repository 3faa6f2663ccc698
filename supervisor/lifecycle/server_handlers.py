"""Makes the handlers of calls about the server, its nodes, devices and backends, and gives each the components that it needs."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from protocol.messages.backend_installs import StartInstall, StartUninstall
from protocol.messages.node_reports import DrainNode, ListNodes
from protocol.runtime import logs
from supervisor.backends.inventory import BackendInventory
from supervisor.handlers.backend_downloads import BackendDownloads
from supervisor.handlers.backend_jobs import BackendJobs
from supervisor.handlers.backends import BackendCalls
from supervisor.handlers.batches import BatchJobs
from supervisor.handlers.metrics import MetricsCalls, ServerSnapshots
from supervisor.handlers.overview import OverviewCalls
from supervisor.handlers.reported_nodes import OneMachine
from supervisor.handlers.server_state import HealthReports, LogReaders, StatsCalls
from supervisor.handlers.system_info import SystemInspection
from supervisor.handlers.system_stats import SystemStatsCalls
from supervisor.handlers.update_checks import UpdateChecks
from supervisor.handlers.usage import UsageCalls
from supervisor.lifecycle.components import Components
from supervisor.metrics.collection import MetricsCollections
from supervisor.metrics.snapshot import MachineSnapshot
from supervisor.models.options.settings_check import limit_warnings
from supervisor.peers.other_versions import OtherVersions
from supervisor.recovery.taken_over_jobs import TakeOverJob
from supervisor.runtime.handler_table import Handler

if TYPE_CHECKING:
    from supervisor.handlers.nodes import NodeReports

log = logs.get_logger()


def server_handlers(
    components: Components, other_versions: OtherVersions, batches: BatchJobs
) -> list[dict[type, Handler]]:
    """Return the handlers of calls about the server as a whole. ``other_versions``: processes that an upgrade has left."""
    settings, loop, bus, peers = components.settings, components.loop, components.bus, components.peers
    models, view, processes = components.models, components.scheduler.view, components.placement
    metrics, calls = components.metrics, components.calls
    counters = components.counters
    nodes = _node_reports(components) if components.settings.cluster_address else OneMachine()
    snapshots = ServerSnapshots(
        peers=peers.all,
        processes=processes,
        known=models.known,
        view=view,
        counters=counters,
        record=components.record,
        loads=lambda: view.loads(loop.now()),
        failed=lambda: view.failed_models(loop.now()),
        key_expiries=components.key_file.expiries,
        machine=lambda: MachineSnapshot(
            components.memory.read(),
            [reading for reading, _ in components.devices.devices()],
            components.disks.known(),
        ),
        key_limits=lambda: components.admission.remaining(components.key_file.limited),
        nodes=nodes,
        batches=lambda: batches.figures,
    )
    unenforced = [f"{each.setting}: {each.text}" for each in limit_warnings(settings)]

    def problems() -> list[str]:
        return [
            *components.key_file.problems,
            *filter(None, [components.usage_writer.problem, models.extra.unusable]),
            *models.unknown_in_configuration(),
            *components.devices.problems(),
            *components.remote_lists.problems(),
            *nodes.problems(),
            *components.nodes.problems(),
            *unenforced,
        ]

    health = HealthReports(
        process_context=components.process_context,
        loop=loop,
        max_loaded_models=settings.max_loaded_models,
        models=models,
        view=view,
        processes=processes,
        counters=counters,
        record=components.record,
        peers=peers.all,
        downloads=components.download_registry.running,
        former_models=other_versions.models,
        problems=problems,
        memory=components.memory.read,
        held_on_devices=components.held.on_devices,
        disks=components.disks,
        nodes=nodes,
        calls=calls,
    )
    metrics_calls = MetricsCalls(
        settings=settings,
        peers=peers,
        view=view,
        metrics=metrics,
        accounting=components.accounting,
        collections=MetricsCollections(loop, bus),
        snapshots=snapshots,
        disks=components.disks,
        calls=calls,
    )
    stats = StatsCalls(models, view, components.stats, components.barrier, calls)
    system_stats = SystemStatsCalls(
        loop=loop,
        machine=Path(settings.machine_dir),
        devices=components.devices.devices,
        memory=components.memory.read,
        nodes=nodes,
        calls=calls,
    )
    log_readers = LogReaders(components.retained_log, calls)
    usage = UsageCalls(components.usage_writer, calls, components.errors)
    overview = OverviewCalls(
        loop=loop,
        bus=bus,
        calls=calls,
        max_loaded_models=settings.max_loaded_models,
        models=models,
        view=view,
        processes=processes,
        record=components.record,
        figures=metrics.recent,
        tokens=components.running_tokens,
        ended=components.accounting.ended,
        downloads=components.download_registry,
        problems=problems,
        memory=components.memory.read,
        held_on_devices=components.held.on_devices,
        disks=components.disks,
        nodes=nodes,
    )
    return [
        dict.fromkeys((ListNodes, DrainNode), partial(_node_call, components)),
        overview.handlers(),
        usage.handlers(),
        health.handlers(),
        metrics_calls.handlers(),
        stats.handlers(),
        system_stats.handlers(),
        log_readers.handlers(),
    ]


def _node_reports(components: Components) -> NodeReports:
    from supervisor.handlers.nodes import NodeReports  # noqa: PLC0415 - only servers with a cluster need it

    return NodeReports(
        head=lambda: components.nodes.head,
        memory=components.memory.read,
        processes=components.placement,
        view=components.scheduler.view,
        record=components.record,
        others=components.nodes.agents,
    )


def _node_call(components: Components, peer: str, call: ListNodes | DrainNode, payload: bytes) -> None:
    """Answer a call about nodes. Those of a server on one machine are rare, and need what nothing else there needs."""
    from supervisor.handlers.nodes import NodeCalls  # noqa: PLC0415 - see above

    nodes = _node_reports(components)
    calls = NodeCalls(nodes, components.scheduler, components.decisions, components.record, components.calls)
    calls.handlers()[type(call)](peer, call, payload)


def batch_jobs(components: Components) -> BatchJobs:
    """Return what keeps a job for batches running."""
    return BatchJobs(
        settings=components.settings,
        loop=components.loop,
        jobs=components.jobs,
        bus=components.bus,
        calls=components.calls,
        closing=lambda: components.scheduler.view.closing,
    )


def machine_handlers(components: Components) -> tuple[list[dict[type, Handler]], dict[type, TakeOverJob]]:
    """Return the handlers of calls about devices and backends, and what takes over an earlier supervisor's jobs for them."""
    view, jobs, calls = components.scheduler.view, components.jobs, components.calls
    known = BackendInventory(components.settings)
    for wrong in known.releases.problems:
        log.warning("a configured release of a backend cannot be used", reason=wrong)
    inspection = SystemInspection(
        machine=components.machine,
        recipes=known.recipes,
        loop=components.loop,
        view=view,
        jobs=jobs,
        memory=components.memory.read,
        calls=calls,
    )
    downloads = BackendDownloads(components.loop.now)
    installs = BackendJobs(components.decisions, jobs, calls, downloads, components.nodes.backends_changed)
    backends = BackendCalls(
        settings=components.settings,
        backends=known,
        devices=inspection.devices,
        view=view,
        internal_calls=components.internal_calls,
        calls=calls,
        jobs=installs,
        downloads=downloads,
    )
    updates = UpdateChecks(
        settings=components.settings,
        models=components.models,
        recipes=known.recipes,
        devices=inspection.devices,
        loop=components.loop,
        jobs=jobs,
        calls=calls,
    )
    taken_over: dict[type, TakeOverJob] = {StartInstall: installs.take_over, StartUninstall: installs.take_over}
    made = inspection, backends, installs, updates, components.devices
    return [each.handlers() for each in made], taken_over
