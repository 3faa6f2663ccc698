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
    """Return the handlers of calls about the server as a whole."""
    view = parts.scheduler.view
    health = HealthReports(
        parts.settings,
        parts.process_context,
        parts.loop,
        parts.bus,
        parts.peers,
        parts.workers,
        parts.models,
        parts.key_file,
        parts.downloads,
        other_versions,
        view,
        parts.metrics,
        parts.calls,
        parts.errors,
    )
    snapshots = ServerSnapshots(
        parts.process_context,
        parts.loop,
        parts.bus,
        parts.peers,
        parts.workers,
        parts.models,
        view,
        parts.metrics,
        parts.logbook,
        parts.errors,
    )
    collections = MetricsCollections(parts.loop, parts.bus)
    return [
        health.handlers(),
        MetricsCalls(parts.settings, parts.peers, view, parts.metrics, collections, snapshots, parts.calls).handlers(),
        StatsCalls(parts.models, view, parts.stats, parts.barrier, parts.calls).handlers(),
        LogReaders(parts.logbook, parts.calls).handlers(),
    ]


def about_models(
    parts: Parts, defaults: SamplingDefaultsCalls, job_kinds: dict[type, TakeOver]
) -> list[dict[type, Handler]]:
    """Return the handlers of calls about models. ``job_kinds``: gets what takes over a job with an order of some type."""
    view = parts.scheduler.view
    downloads = Downloads(
        parts.settings,
        parts.loop,
        parts.downloads,
        parts.models,
        parts.targets,
        parts.scheduler,
        parts.decisions,
        parts.jobs,
        parts.calls,
        parts.errors,
    )
    parts.effects.fetch = downloads.fetch_for_scheduler
    job_kinds[StartPull] = downloads.take_over
    headers = FileHeaders(parts.settings, parts.loop, parts.jobs, view)
    details = ModelDescriptions(
        parts.settings, parts.loop, parts.models, parts.targets, headers, view, parts.calls, parts.errors
    )
    deletions = Deletions(
        parts.settings,
        parts.models,
        parts.targets,
        downloads,
        parts.downloads,
        parts.scheduler,
        parts.internal_calls,
        parts.stats,
        parts.jobs,
        parts.calls,
        parts.errors,
    )
    return [
        downloads.handlers(),
        headers.handlers(),
        details.handlers(),
        deletions.handlers(),
        ModelLists(parts.models, headers, view, parts.calls, parts.errors).handlers(),
        ModelLoading(
            parts.loop, parts.models, parts.targets, parts.scheduler, parts.internal_calls, parts.calls
        ).handlers(),
        Pulls(parts.settings, parts.loop, parts.models, downloads, parts.downloads, parts.calls).handlers(),
        VariantQueries(parts.settings, parts.loop, parts.jobs, parts.calls).handlers(),
        defaults.handlers(),
    ]


def about_the_machine(parts: Parts, job_kinds: dict[type, TakeOver]) -> list[dict[type, Handler]]:
    """Return the handlers of calls about devices and backends, and tell the registry of models the devices."""
    view = parts.scheduler.view
    known = BackendInventory(parts.settings)
    for wrong in known.releases.problems:
        log.warning("backend releases", problem=wrong)
    machine = hardware.read_machine(parts.settings.machine_dir)
    parts.models.machine = compatibility.capacity_of(machine)
    inspection = SystemInspection(machine, known.recipes, parts.loop, view, parts.jobs, parts.calls)
    installs = BackendJobs(
        parts.settings,
        known,
        lambda: inspection.machine.devices,
        view,
        parts.decisions,
        parts.internal_calls,
        parts.jobs,
        parts.calls,
    )
    job_kinds |= {StartInstall: installs.take_over, StartUninstall: installs.take_over}
    return [inspection.handlers(), installs.handlers()]
