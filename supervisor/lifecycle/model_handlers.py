"""Makes the handlers of calls about models, and gives each the components that it needs."""

from __future__ import annotations

from pathlib import Path

from supervisor.handlers.disk_usage import DiskCalls
from supervisor.handlers.models.deletion import Deletions
from supervisor.handlers.models.file_headers import FileHeaders
from supervisor.handlers.models.loading import ModelLoading
from supervisor.handlers.models.model_details import ModelDescriptions
from supervisor.handlers.models.model_lists import ModelLists
from supervisor.handlers.models.model_options import ModelOptions
from supervisor.handlers.models.pull import Pulls
from supervisor.handlers.models.sampling_defaults import FILE, SamplingDefaultsCalls, SamplingDefaultsStore
from supervisor.handlers.models.variants import VariantQueries
from supervisor.lifecycle.components import Components
from supervisor.runtime.handler_table import Handler


def sampling_defaults(components: Components) -> SamplingDefaultsCalls:
    """Return the handlers of calls about sampling defaults, which also send them to workers."""
    file = Path(components.settings.state_dir) / FILE
    store = SamplingDefaultsStore(file, components.models.problems.append, components.state_writer.finish)
    return SamplingDefaultsCalls(store, components.calls, components.bus, components.peers)


def model_handlers(components: Components, sampling: SamplingDefaultsCalls) -> list[dict[type, Handler]]:
    """Return the handlers of calls about models."""
    settings, loop, jobs, calls = components.settings, components.loop, components.jobs, components.calls
    models, targets, errors = components.models, components.targets, components.errors
    view, downloads, registry = components.scheduler.view, components.downloads, components.download_registry
    headers = FileHeaders(settings, loop, jobs, view)
    deletions = Deletions(
        settings=settings,
        models=models,
        targets=targets,
        downloads=downloads,
        registry=registry,
        record=components.record,
        scheduler=components.scheduler,
        internal_calls=components.internal_calls,
        stats=components.stats,
        jobs=jobs,
        calls=calls,
        errors=errors,
        on_removed=components.nodes.files_removed,
    )
    descriptions = ModelDescriptions(
        settings=settings,
        loop=loop,
        models=models,
        targets=targets,
        headers=headers,
        view=view,
        calls=calls,
        errors=errors,
    )
    loading = ModelLoading(
        loop=loop,
        models=models,
        targets=targets,
        scheduler=components.scheduler,
        internal_calls=components.internal_calls,
        calls=calls,
    )
    pulls = Pulls(
        settings=settings,
        loop=loop,
        models=models,
        downloads=downloads,
        registry=registry,
        record=components.record,
        calls=calls,
        errors=errors,
    )
    lists = ModelLists(models, headers, view, calls, errors, where=components.nodes.where)
    options = ModelOptions(settings, models, view, calls)
    variants = VariantQueries(settings, loop, jobs, calls)
    disk = DiskCalls(
        loop=loop,
        models=models,
        downloads=registry,
        record=components.record,
        view=view,
        jobs=jobs,
        calls=calls,
    )
    made = (
        components.remote_lists,
        downloads,
        headers,
        deletions,
        descriptions,
        lists,
        loading,
        options,
        pulls,
        variants,
        disk,
        sampling,
    )
    return [each.handlers() for each in made]
