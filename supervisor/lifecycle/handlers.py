"""Makes the handlers of calls, and gives each its parts."""

from __future__ import annotations

from protocol.messages.backend_installs import StartInstall, StartUninstall
from protocol.messages.model_files import StartPull
from protocol.runtime import logs
from supervisor.backends.inventory import BackendInventory
from supervisor.handlers.backends import BackendJobs
from supervisor.handlers.metrics import MetricsCalls, ServerSnapshots
from supervisor.handlers.models.deletion import Deletions
from supervisor.handlers.models.downloads import Downloads
from supervisor.handlers.models.file_headers import FileHeaders
from supervisor.handlers.models.loading import ModelLoading
from supervisor.handlers.models.model_details import ModelDescriptions
from supervisor.handlers.models.model_lists import ModelLists
from supervisor.handlers.models.pull import Pulls
from supervisor.handlers.models.sampling_defaults import SamplingDefaultsCalls
from supervisor.handlers.models.variants import VariantQueries
from supervisor.handlers.other_versions import OtherVersions
from supervisor.handlers.server_state import HealthReports, LogReaders, StatsCalls
from supervisor.handlers.system_info import SystemInspection
from supervisor.lifecycle.parts import Parts
from supervisor.machine import hardware
from supervisor.metrics.collection import MetricsCollections
from supervisor.models import compatibility
from supervisor.recovery.taken_over_jobs import TakeOver
from supervisor.runtime.handler_table import Handler

log = logs.get_logger()


def about_the_server(parts: Parts, other_versions: OtherVersions) -> list[dict[type, Handler]]:
    """Return the handlers of calls about the server as a whole. ``other_versions``: processes that an upgrade has left."""
    settings, context, loop, bus, peers = parts.settings, parts.process_context, parts.loop, parts.bus, parts.peers
    processes, models, view = parts.placement, parts.models, parts.scheduler.view
    calls, errors = parts.calls, parts.errors
    metrics, logbook, key_file, downloads = parts.metrics, parts.logbook, parts.key_file, parts.downloads
    snapshots = ServerSnapshots(loop, bus, peers, processes, models, view, metrics, logbook, errors)
    health = HealthReports(
        settings,
        context,
        loop,
        bus,
        peers,
        processes,
        models,
        key_file,
        downloads,
        other_versions,
        view,
        metrics,
        calls,
        errors,
    )
    collections = MetricsCollections(loop, bus)
    return [
        health.handlers(),
        MetricsCalls(settings, peers, view, metrics, collections, snapshots, calls).handlers(),
        StatsCalls(models, view, parts.stats, parts.barrier, calls).handlers(),
        LogReaders(logbook, calls).handlers(),
    ]


def about_models(
    parts: Parts, defaults: SamplingDefaultsCalls, job_kinds: dict[type, TakeOver]
) -> list[dict[type, Handler]]:
    """Return the handlers of calls about models. ``job_kinds``: gets what takes over a job with an order of some type."""
    settings, loop, models, targets, jobs = parts.settings, parts.loop, parts.models, parts.targets, parts.jobs
    scheduler, internal_calls, calls, errors = parts.scheduler, parts.internal_calls, parts.calls, parts.errors
    view, registry = scheduler.view, parts.downloads
    downloads = Downloads(settings, loop, registry, models, targets, scheduler, parts.decisions, jobs, calls, errors)
    parts.effects.fetch = downloads.fetch_for_scheduler
    job_kinds[StartPull] = downloads.take_over
    headers = FileHeaders(settings, loop, jobs, view)
    deletions = Deletions(
        settings, models, targets, downloads, registry, scheduler, internal_calls, parts.stats, jobs, calls, errors
    )
    return [
        downloads.handlers(),
        headers.handlers(),
        deletions.handlers(),
        ModelDescriptions(settings, loop, models, targets, headers, view, calls, errors).handlers(),
        ModelLists(models, headers, view, calls, errors).handlers(),
        ModelLoading(loop, models, targets, scheduler, internal_calls, calls).handlers(),
        Pulls(settings, loop, models, downloads, registry, calls).handlers(),
        VariantQueries(settings, loop, jobs, calls).handlers(),
        defaults.handlers(),
    ]


def about_the_machine(parts: Parts, job_kinds: dict[type, TakeOver]) -> list[dict[type, Handler]]:
    """Return the handlers of calls about devices and backends, and tell the registry of models the devices."""
    settings, view, jobs, calls = parts.settings, parts.scheduler.view, parts.jobs, parts.calls
    known = BackendInventory(settings)
    for wrong in known.releases.problems:
        log.warning("backend releases", problem=wrong)
    machine = hardware.read_machine(settings.machine_dir)
    parts.models.machine = compatibility.capacity_of(machine)
    inspection = SystemInspection(machine, known.recipes, parts.loop, view, jobs, calls)
    installs = BackendJobs(
        settings, known, inspection.devices, view, parts.decisions, parts.internal_calls, jobs, calls
    )
    job_kinds |= {StartInstall: installs.take_over, StartUninstall: installs.take_over}
    return [inspection.handlers(), installs.handlers()]
