"""Pull, also of a model that is not registered yet: it is registered when its files are there.

Nothing is written before the download has succeeded, so no model is ever half registered. Until then the download holds
the entry, and a second pull of the same model joins the download.
"""

from __future__ import annotations

from functools import partial

from protocol.config.settings import Settings
from protocol.failures import Code, Failure, printable
from protocol.messages.model_files import DownloadReport, Pulled, PullModel, RegisterModel, Registration
from protocol.runtime.loop import Loop
from supervisor.handlers.models.downloads import Downloads
from supervisor.handlers.models.loading import guess_recipe
from supervisor.internal_errors import InternalErrors
from supervisor.models import files
from supervisor.models import registration as registrations
from supervisor.models.catalogues.catalogue import CatalogueEntry
from supervisor.models.download_registry import DownloadRegistry, DownloadWaiter
from supervisor.models.names import bare_checkpoint
from supervisor.models.options import load_options
from supervisor.models.registry import ModelRegistry
from supervisor.persistence.server_record import ServerRecord
from supervisor.runtime.gateway_calls import GatewayCalls
from supervisor.runtime.handler_table import Handler
from workers.backends.registry import DESCRIPTORS


class Pulls:
    """Answers ``PullModel``. ``registry``: of the ``downloads``."""

    def __init__(
        self,
        settings: Settings,
        loop: Loop,
        models: ModelRegistry,
        downloads: Downloads,
        registry: DownloadRegistry,
        record: ServerRecord,
        calls: GatewayCalls,
        errors: InternalErrors,
    ) -> None:
        self._settings, self._loop, self._models, self._record = settings, loop, models, record
        self._downloads, self._registry, self._calls, self._errors = downloads, registry, calls, errors

    def handlers(self) -> dict[type, Handler]:
        """Return the handlers of these messages."""
        return {PullModel: self._pull, RegisterModel: self._register_only}

    def _pull(self, peer: str, call: PullModel, _payload: bytes) -> None:
        """Download a model, and first register it if the call describes it."""
        waiter = None if call.detached else DownloadWaiter(peer, call.number, call.progress)
        known_entry = self._models.known(call.model)
        name = known_entry.name if known_entry is not None else call.model
        ending = self._downloads.pausing(name)
        unfinished = self._record.paused_downloads.get(name) or self._registry.cancelled(name)
        if ending is not None:
            ending.then.append(partial(self._pull_again, peer, call))
            return
        registration = call.registration or (unfinished.registration if unfinished is not None else None)
        described = self._downloads.described(call.model, registration)
        if described is not None:
            name = described.name
            self._register(waiter, described, registration)
        elif not self._downloads.join(call.model, waiter):
            known = self._models.find(call.model) is not None
            entry = self._named_entry(call, adopt=call.adopt or unfinished is not None)
            name = entry.name
            if self._models.downloaded(entry):
                self._models.adopted.keep(name)
                if waiter is not None:
                    self._calls.answer_when_written(peer, call.number, Pulled(name))
                else:
                    self._registry.note_end(DownloadReport(name), None, self._loop.now())
            else:
                self._fetch(entry, waiter, provisional=not known)
        if waiter is None:
            self._calls.answer_when_written(peer, call.number, self._registry.report(name))

    def _register_only(self, peer: str, call: RegisterModel, _payload: bytes) -> None:
        """Register a model, or change the labels and options of one; answered when it is on the disk."""
        entry = registrations.entry_from_registration(
            call.model, call.registration, load_options.file_directories(self._settings)
        )
        self._check_registration(entry)
        self._models.register(entry.name, registrations.item_of_entry(entry))
        self._calls.answer_when_written(peer, call.number, self._models.entry(entry.name))

    def _fetch(self, entry: CatalogueEntry, waiter: DownloadWaiter | None, *, provisional: bool) -> None:
        """Begin or join the download. If it fails, an adopted model (``provisional``) is forgotten."""
        name = entry.name
        try:
            self._check_program(entry)
            self._downloads.fetch(name, waiter)
        except Exception:
            if provisional:
                self._models.adopted.forget(name)
            raise
        running = self._registry.running_for(name)
        if running is not None and provisional:
            running.provisional = True

    def _check_program(self, entry: CatalogueEntry) -> None:
        """If a recipe's own program fetches the model but is not installed here, raise what helps."""
        descriptor = DESCRIPTORS.get(entry.recipe)
        if descriptor is not None and descriptor.checkpoint_scheme:
            expected = files.expected_files(entry)
            self._models.specs.precheck(self._models.spec(entry, {}, ignore_saved=True, found=expected))

    def _pull_again(self, peer: str, call: PullModel) -> None:
        """Resume a download, whose job has ended."""
        try:
            self._pull(peer, call, b"")
        except Exception as problem:  # noqa: BLE001 - the call must be answered
            self._calls.reply(peer, call.number, self._errors.failure_of(problem, model=call.model))

    def _named_entry(self, call: PullModel, *, adopt: bool) -> CatalogueEntry:
        """Return the model that a call names. An unregistered checkpoint is adopted if ``adopt`` allows that."""
        if not adopt:
            return self._models.resolve(call.model)
        entry = self._models.resolve_or_adopt(call.model, guess_recipe(call.model, ""))
        self._models.check_not_deleting(entry.name)
        return entry

    def _register(
        self, waiter: DownloadWaiter | None, entry: CatalogueEntry, registration: Registration | None
    ) -> None:
        self._check_registration(entry)
        self._check_program(entry)
        found = files.locate(entry, self._settings.cache_dir)
        here = found.paths if found else []
        self._downloads.fetch(entry.name, waiter, pending=entry, registration=registration, present=here)

    def _check_registration(self, entry: CatalogueEntry) -> None:
        """Raise ``conflict`` if another model has the name, or if it is being deleted."""
        running = self._registry.running_for(entry.name)
        pending = running.pending if running else None
        known = pending or self._models.registered(entry.name)
        if known is not None:
            _check_same_files(known, entry)
        self._models.check_not_deleting(entry.name)


def _check_same_files(known: CatalogueEntry, entry: CatalogueEntry) -> None:
    """Raise ``conflict``, saying what differs, unless one entry may replace the other: labels and options may change."""
    before, now = _files_of(known), _files_of(entry)
    differing = [field for field in before if before[field] != now[field]]
    if not differing:
        return
    changes = [f"`{field}` is {printable(before[field])}, not {printable(now[field])}" for field in differing]
    reason = (
        f"model {entry.name} is registered already, and {', '.join(changes)}: delete it first, or choose another name"
    )
    raise Failure(Code.CONFLICT, reason, model=entry.name, param=differing[0]).raised()


def _files_of(entry: CatalogueEntry) -> dict[str, str]:
    """Return the values that decide which files a model has, by the fields of a registration."""
    projectors = sorted({source.mmproj for source in entry.sources} - {""})
    checkpoint = bare_checkpoint(entry.checkpoint)
    parts = {part: bare_checkpoint(each) for part, each in entry.checkpoints.items() if part != "main"}
    names = " and ".join(f"{part} {parts[part]}" for part in sorted(parts)) or "none"
    return {
        "checkpoint": checkpoint,
        "recipe": entry.recipe,
        "mmproj": ", ".join(projectors) or "none",
        "checkpoints": names,
    }
