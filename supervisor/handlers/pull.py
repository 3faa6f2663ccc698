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
        entry = supervisor.models.resolve(call.model)
        if supervisor.models.downloaded(entry):
            supervisor.answer(peer, call.number, Pulled(entry.name))
        else:
            downloads.fetch(supervisor, entry.name, waiter)


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
