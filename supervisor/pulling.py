"""Pull, also of a model that nobody knows yet: it is registered once its files are there.

Nothing is written before the download has succeeded, so nothing is ever half registered; until then the model's
entry is with its download, and a second pull of the same joins that.
"""

from __future__ import annotations

from typing import Final

from protocol.checkpoints import printable
from protocol.failures import Code, Failure
from protocol.shelf import Pulled, PullModel
from supervisor import fetching, files
from supervisor.catalogue import Entry
from supervisor.downloads import Waiter
from supervisor.house import Handler, House
from supervisor.registration import wanted


def pull_model(house: House, peer: str, call: PullModel, _payload: bytes) -> None:
    """Download a model, and register it first if the call says what it is."""
    waiter = Waiter(peer, call.number, call.progress)
    if call.registration is not None:
        _register(house, waiter, wanted(call.model, call.registration))
    elif not fetching.join(house, call.model, waiter):
        name = house.models.resolve(call.model).name
        if house.models.downloaded(name):
            house.answer(peer, call.number, Pulled(name))
        else:
            fetching.fetch(house, name, waiter)


def _register(house: House, waiter: Waiter, entry: Entry) -> None:
    running = house.downloads.running_for(entry.name)
    pending = running.pending if running else None
    known = pending or house.models.registered(entry.name)
    if known is not None and not _same(known, entry):
        raise Failure(
            Code.CONFLICT,
            f"model {entry.name} is registered already, as {printable(known.checkpoint)} for recipe {known.recipe}; "
            "delete it first, or choose another name",
            model=entry.name,
            param="model_name",
        ).raised()
    house.models.check_stays(entry.name)
    found = files.locate(entry, house.settings.cache_dir)
    present = [found.path, found.mmproj] if found else []
    fetching.fetch(house, entry.name, waiter, pending=entry, present=[path for path in present if path])


def _same(known: Entry, entry: Entry) -> bool:
    """Return whether an entry may stand for the other: labels may be set anew, files may not change."""
    before = [known.checkpoint.removeprefix("hf:"), known.recipe, {source.mmproj for source in known.sources} - {""}]
    now = [entry.checkpoint.removeprefix("hf:"), entry.recipe, {source.mmproj for source in entry.sources} - {""}]
    return before == now


HANDLERS: Final[dict[type, Handler]] = {PullModel: pull_model}
