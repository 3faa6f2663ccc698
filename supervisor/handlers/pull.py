"""Pull, also of a model that is not registered yet: it is registered when its files are there.

Nothing is written before the download has succeeded, so no model is ever half registered.  Until then the download has
the entry, and a second pull of the same model joins the download.
"""

from __future__ import annotations

from typing import Final

from protocol.failures import Code, Failure
from protocol.messages.model_files import Pulled, PullModel
from protocol.models.checkpoints import printable
from supervisor.handlers import downloads
from supervisor.handlers.loading import guess_recipe
from supervisor.models import files
from supervisor.models.catalogue import CatalogueEntry
from supervisor.models.registration import entry_from_registration
from supervisor.processes.download_registry import DownloadWaiter
from supervisor.runtime.supervisor import Handler, Supervisor


def pull_model(supervisor: Supervisor, peer: str, call: PullModel, _payload: bytes) -> None:
    """Download a model, and register it first if the call says what it is."""
    waiter = DownloadWaiter(peer, call.number, call.progress)
    if call.registration is not None:
        _register(supervisor, waiter, entry_from_registration(call.model, call.registration))
    elif not downloads.join(supervisor, call.model, waiter):
        known = supervisor.models.find(call.model) is not None
        entry = _named_entry(supervisor, call)
        if supervisor.models.downloaded(entry):
            supervisor.answer(peer, call.number, Pulled(entry.name))
        else:
            _fetch(supervisor, entry.name, waiter, provisional=not known)


def _fetch(supervisor: Supervisor, name: str, waiter: DownloadWaiter, *, provisional: bool) -> None:
    """Begin or join the download; an adopted model (``provisional``) is forgotten if that does not succeed."""
    try:
        downloads.fetch(supervisor, name, waiter)
    except Exception:
        if provisional:
            supervisor.models.forget_adopted(name)
        raise
    running = supervisor.downloads.running_for(name)
    if running is not None and provisional:
        running.provisional = True


def _named_entry(supervisor: Supervisor, call: PullModel) -> CatalogueEntry:
    """Return the model that a call names; a checkpoint that is not registered is adopted if the call allows that."""
    if not call.adopt:
        return supervisor.models.resolve(call.model)
    entry = supervisor.models.resolve_or_adopt(call.model, guess_recipe(call.model, ""))
    supervisor.models.check_not_deleting(entry.name)
    return entry


def _register(supervisor: Supervisor, waiter: DownloadWaiter, entry: CatalogueEntry) -> None:
    running = supervisor.downloads.running_for(entry.name)
    pending = running.pending if running else None
    known = pending or supervisor.models.registered(entry.name)
    if known is not None and not _same_files(known, entry):
        raise Failure(
            Code.CONFLICT,
            f"model {entry.name} is registered already, as {printable(known.checkpoint)} for recipe {known.recipe}; "
            "delete it first, or choose another name",
            model=entry.name,
            param="model_name",
        ).raised()
    supervisor.models.check_not_deleting(entry.name)
    found = files.locate(entry, supervisor.settings.cache_dir)
    present = [found.path, found.mmproj] if found else []
    downloads.fetch(supervisor, entry.name, waiter, pending=entry, present=[path for path in present if path])


def _same_files(known: CatalogueEntry, entry: CatalogueEntry) -> bool:
    """Return whether an entry may replace the other: labels may change, files may not."""
    before = [known.checkpoint.removeprefix("hf:"), known.recipe, {source.mmproj for source in known.sources} - {""}]
    now = [entry.checkpoint.removeprefix("hf:"), entry.recipe, {source.mmproj for source in entry.sources} - {""}]
    return before == now


HANDLERS: Final[dict[type, Handler]] = {PullModel: pull_model}
