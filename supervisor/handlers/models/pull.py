"""Pull, also of a model that is not registered yet: it is registered when its files are there.

Nothing is written before the download has succeeded, so no model is ever half registered. Until then the download holds
the entry, and a second pull of the same model joins the download.
"""

from __future__ import annotations

from protocol.config.settings import Settings
from protocol.failures import Code, Failure, printable
from protocol.messages.model_files import Pulled, PullModel
from protocol.runtime.loop import Loop
from supervisor.handlers.models.downloads import Downloads
from supervisor.handlers.models.loading import guess_recipe
from supervisor.models import files
from supervisor.models.catalogues.catalogue import CatalogueEntry
from supervisor.models.download_registry import DownloadRegistry, DownloadWaiter
from supervisor.models.names import bare_checkpoint
from supervisor.models.options import load_options
from supervisor.models.registration import entry_from_registration
from supervisor.models.registry import ModelRegistry
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
        calls: GatewayCalls,
    ) -> None:
        self._settings, self._loop, self._models = settings, loop, models
        self._downloads, self._registry, self._calls = downloads, registry, calls

    def handlers(self) -> dict[type, Handler]:
        """Return the handlers of these messages."""
        return {PullModel: self._pull}

    def _pull(self, peer: str, call: PullModel, _payload: bytes) -> None:
        """Download a model, and first register it if the call describes it."""
        waiter = None if call.detached else DownloadWaiter(peer, call.number, call.progress)
        name = call.model
        if call.registration is not None:
            directories = load_options.file_directories(self._settings)
            entry = entry_from_registration(call.model, call.registration, directories)
            name = entry.name
            self._register(waiter, entry)
        elif not self._downloads.join(call.model, waiter):
            known = self._models.find(call.model) is not None
            entry = self._named_entry(call)
            name = entry.name
            if self._models.downloaded(entry):
                self._models.adopted.keep(name)
                if waiter is not None:
                    self._calls.answer_when_written(peer, call.number, Pulled(name))
                else:
                    self._registry.note_end(name, None, None, self._loop.now())
            else:
                self._fetch(entry, waiter, provisional=not known)
        if waiter is None:
            self._calls.answer_when_written(peer, call.number, self._registry.report(name))

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

    def _named_entry(self, call: PullModel) -> CatalogueEntry:
        """Return the model that a call names. An unregistered checkpoint is adopted if the call allows that."""
        if not call.adopt:
            return self._models.resolve(call.model)
        entry = self._models.resolve_or_adopt(call.model, guess_recipe(call.model, ""))
        self._models.check_not_deleting(entry.name)
        return entry

    def _register(self, waiter: DownloadWaiter | None, entry: CatalogueEntry) -> None:
        running = self._registry.running_for(entry.name)
        pending = running.pending if running else None
        known = pending or self._models.registered(entry.name)
        if known is not None:
            _check_same_files(known, entry)
        self._models.check_not_deleting(entry.name)
        self._check_program(entry)
        found = files.locate(entry, self._settings.cache_dir)
        present = [found.path, found.mmproj] if found else []
        self._downloads.fetch(entry.name, waiter, pending=entry, present=[path for path in present if path])


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
    return {"checkpoint": checkpoint, "recipe": entry.recipe, "mmproj": ", ".join(projectors) or "none"}
