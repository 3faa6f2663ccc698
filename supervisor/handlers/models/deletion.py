"""Delete: end the download, unload the model, forget it, and remove its kept prompt caches and the files that no other model uses.

A job process removes the files, because a disk may be slow. From the first step to the last, no request can use the
model (``ModelRegistry.deleting``). Whatever a step raises, the deletion ends and is answered, and what is left of the
model can be used again.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final

from protocol.config.settings import Settings
from protocol.failures import Code, Failure, invalid
from protocol.messages.model_files import (
    Deleted,
    DeleteModel,
    Removed,
    RemoveFailed,
)
from protocol.models import prompt_caches
from protocol.runtime import logs
from supervisor.handlers.model_targets import ModelTargets
from supervisor.handlers.models.downloads import Downloads
from supervisor.handlers.models.loading import guess_recipe
from supervisor.internal_errors import InternalErrors
from supervisor.metrics.latest_stats import LatestStats
from supervisor.models import files
from supervisor.models.catalogues.catalogue import CatalogueEntry
from supervisor.models.deletion_plan import hub_folders, partial_files, plan_deletion
from supervisor.models.download_registry import DownloadRegistry
from supervisor.models.names import LATEST
from supervisor.models.registry import ModelRegistry
from supervisor.persistence.server_record import ServerRecord
from supervisor.runtime.gateway_calls import GatewayCalls
from supervisor.runtime.handler_table import Handler
from supervisor.runtime.internal_calls import InternalCalls
from supervisor.runtime.jobs import Jobs
from supervisor.scheduler.scheduler import Scheduler

MODULE: Final = "workers.jobs.remove"

log = logs.get_logger()


class Deletions:
    """The deletions in progress."""

    def __init__(
        self,
        settings: Settings,
        models: ModelRegistry,
        targets: ModelTargets,
        downloads: Downloads,
        registry: DownloadRegistry,
        record: ServerRecord,
        scheduler: Scheduler,
        internal_calls: InternalCalls,
        stats: LatestStats,
        jobs: Jobs,
        calls: GatewayCalls,
        errors: InternalErrors,
        on_removed: Callable[[str, list[str]], None],
    ) -> None:
        """No deletion is under way.

        ``on_removed`` is called with a deleted model and the files that were removed: other nodes may have copies.
        """
        self._settings, self._models, self._targets = settings, models, targets
        self._downloads, self._registry, self._record = downloads, registry, record
        self._scheduler, self._internal_calls, self._stats = scheduler, internal_calls, stats
        self._jobs, self._calls, self._errors = jobs, calls, errors
        self._on_removed = on_removed
        self._by_job: dict[str, _Deletion] = {}

    def handlers(self) -> dict[type, Handler]:
        """Return the handlers of these messages."""
        return {DeleteModel: self._delete, Removed: self._result, RemoveFailed: self._result}

    def _delete(self, peer: str, call: DeleteModel, _payload: bytes) -> None:
        if call.name_only and self._name_removed(peer, call):
            return
        entry = self._entry(call.model)
        self._models.check_not_deleting(entry.name)
        if entry.configured:
            reason = f"model {entry.name} is a section of the configuration: remove it there, and reload"
            raise Failure(Code.CONFLICT, reason, model=entry.name).raised()
        if entry.path:
            reason = f"model {entry.name} is a file that was not downloaded here: remove the file itself"
            raise invalid(reason, "model_name")
        if not self._known(entry):
            raise Failure(Code.MODEL_NOT_FOUND, f"model {entry.name} is not downloaded", model=entry.name).raised()
        self._check_removable(entry)
        if call.dry_run:
            self._calls.answer(peer, call.number, self._planned(entry))
            return
        self._models.deleting.add(entry.name)
        deletion = _Deletion(entry, peer, call.number)
        why = Failure(Code.CONFLICT, f"model {entry.name} was deleted while it was downloaded", model=entry.name)
        unload = partial(self._step, deletion, self._unload)
        if not self._downloads.cancel(entry.name, why, unload):
            unload()

    def _entry(self, model: str) -> CatalogueEntry:
        """Return the entry of a model, which may not be registered yet: its download runs, is paused or was cancelled."""
        download = self._registry.running_for(model)
        unfinished = self._record.paused_downloads.get(model) or self._registry.cancelled(model)
        if download is not None and download.pending is not None:
            return download.pending
        if unfinished is None:
            return self._models.resolve(model)
        described = self._downloads.described(model, unfinished.registration)
        return described or self._models.resolve_or_adopt(model, guess_recipe(model, ""))

    def _name_removed(self, peer: str, call: DeleteModel) -> bool:
        """Remove another name of a model and answer; return False for its own name.

        Raises ``conflict`` if the model has others.
        """
        names = self._models.user_aliases
        alias = call.model.removesuffix(LATEST)
        if alias in names.aliases:
            self._models.drop_alias(alias)
            self._targets.forget_names(call.model, alias)
            self._calls.answer_when_written(peer, call.number, Deleted(alias))
            return True
        model = self._models.resolve(call.model).name
        if alias in self._models.configuration.aliases:
            reason = f"{alias} is an alias of {model} in the configuration: remove it there, or delete {model}"
            raise Failure(Code.CONFLICT, reason, model=model).raised()
        others = names.of(model)
        if others:
            reason = f"model {model} has copies, which use its files: delete {' and '.join(sorted(others))} first"
            raise Failure(Code.CONFLICT, reason, model=model).raised()
        return False

    def _check_removable(self, entry: CatalogueEntry) -> None:
        """Raise ``conflict`` for a model of the catalogue whose files all belong to other models as well: it would stay as it is."""
        models = self._models
        if models.registered(entry.name) or entry.name in models.adopted.entries or not models.downloaded(entry):
            return
        plan = plan_deletion(entry, models.others(entry), self._settings.cache_dir, set())
        if plan.kept_for and not (plan.order.files or plan.order.tag):
            reason = f"model {entry.name} has the same files as {' and '.join(plan.kept_for)}: delete that first"
            raise Failure(Code.CONFLICT, reason, model=entry.name).raised()

    def _known(self, entry: CatalogueEntry) -> bool:
        """Return whether anything of the model can be deleted: a download, a registration, a worker, or a file."""
        models = self._models
        if self._registry.running_for(entry.name) or entry.name in self._record.paused_downloads:
            return True
        if self._registry.cancelled(entry.name):
            return True
        if models.registered(entry.name):
            return True
        if models.adopted.is_kept(entry.name):
            return True
        model = self._scheduler.view.model(entry.name)
        if model is not None and model.worker:
            return True
        # Parts that are here may all be those of other models.
        others = models.others(entry) if entry.checkpoints and not models.downloaded(entry) else []
        wanted = plan_deletion(entry, others, self._settings.cache_dir, set()).order
        return bool(wanted.files or any(partial_files(Path(each)) for each in wanted.repositories))

    def _planned(self, entry: CatalogueEntry) -> Deleted:
        """Return what the deletion of a model would remove."""
        order, kept_for = plan_deletion(entry, self._models.others(entry), self._settings.cache_dir, self._busy(entry))
        unfinished = [path for folder in order.repositories for path in partial_files(Path(folder))]
        removed = files.sized([*map(Path, order.files), *unfinished])
        return Deleted(entry.name, len(removed), kept_for, removed)

    def _busy(self, entry: CatalogueEntry) -> set[str]:
        """Return the folders of repositories that other models are being downloaded from."""
        running = [self._registry.running_for(model) for model in self._registry.running() if model != entry.name]
        return {folder for download in running if download is not None for folder in hub_folders(download.sources)}

    def _step(self, deletion: _Deletion, step: Callable[[_Deletion], None]) -> None:
        """Do the next step of a deletion. If it raises, the deletion ends with that failure and the model stays."""
        try:
            step(deletion)
        except Exception as problem:  # noqa: BLE001 - whatever it is, the model must not stay "being deleted"
            self._end(deletion, self._errors.failure_of(problem, model=deletion.entry.name))

    def _unload(self, deletion: _Deletion) -> None:
        name = deletion.entry.name
        self._targets.forget_model(name)
        self._scheduler.model_deleted(name)
        self._internal_calls.unload([name], partial(self._step, deletion, self._remove))

    def _remove(self, deletion: _Deletion) -> None:
        entry = deletion.entry
        self._scheduler.model_deleted(entry.name)
        plan = plan_deletion(entry, self._models.others(entry), self._settings.cache_dir, self._busy(entry))
        self._models.forget(entry)
        self._record.download_resumed(entry.name)
        self._registry.dismiss(entry.name)
        self._scheduler.forget_use(entry.name)
        self._stats.forget(entry.name)
        deletion.kept_for, deletion.removed = plan.kept_for, plan.order.files
        if plan.empty and not prompt_caches.entries_of(self._settings.cache_dir, entry.name):
            self._end(deletion, None)
            return
        job = self._jobs.start(MODULE, self._ended, plan.order)
        self._by_job[job] = deletion

    def _result(self, job: str, message: Removed | RemoveFailed, _payload: bytes) -> None:
        deletion = self._by_job.get(job)
        if deletion is not None:
            deletion.result = message
        self._jobs.dismiss(job)

    def _ended(self, job: str, why: str) -> None:
        deletion = self._by_job.pop(job)
        result = deletion.result
        failure = result.failure if isinstance(result, RemoveFailed) else None
        if result is None:
            reason = f"deleting {deletion.entry.name} was interrupted ({why}); delete it again"
            failure = Failure(Code.INTERNAL, reason, model=deletion.entry.name)
        deletion.files = result.files if isinstance(result, Removed) else 0
        self._end(deletion, failure)

    def _end(self, deletion: _Deletion, failure: Failure | None) -> None:
        name = deletion.entry.name
        self._models.deleting.discard(name)
        if failure is not None:
            log.error("model not deleted", model=name, reason=failure.message, detail=failure.detail)
        else:
            log.info("model deleted", model=name, files=deletion.files, kept_for=deletion.kept_for)
            self._on_removed(name, deletion.removed)
        result = failure or Deleted(name, deletion.files, deletion.kept_for)
        self._calls.reply(deletion.peer, deletion.number, result, when_written=True)


class _Deletion:
    def __init__(self, entry: CatalogueEntry, peer: str, number: int) -> None:
        self.entry = entry
        self.peer = peer
        self.number = number
        self.kept_for: list[str] = []
        self.removed: list[str] = []
        self.files = 0
        self.result: Removed | RemoveFailed | None = None
