"""Delete: end the download, unload the model, forget it, and remove the files that nobody else uses.

A job process removes the files, because a disk may take its time.  From the first step to the last nobody can have
the model (``Models.leaving``).
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

from protocol import logs
from protocol.checkpoints import HubPlace, TagPlace, hub_cache, parse
from protocol.failures import Code, Failure, LemonbusError, invalid
from protocol.shelf import Deleted, DeleteModel, Removed, RemoveFailed, Removing
from supervisor import fetching, files, jobs
from supervisor.catalogue import Entry
from supervisor.house import Handler, House

MODULE: Final = "workers.jobs.remove"

log = logs.get()


class Plan(NamedTuple):
    """What has to go, and who else uses what stays."""

    order: Removing
    kept_for: list[str]

    @property
    def empty(self) -> bool:
        """Whether there is nothing to do."""
        return not (self.order.files or self.order.repositories or self.order.tag)


def plan(entry: Entry, others: list[Entry], cache_dir: str, busy: set[str]) -> Plan:
    """Return what only this entry uses; ``busy``: repositories that something is downloaded from."""
    mine = files.holdings(entry, cache_dir)
    theirs = {other.name: found for other in _near(entry, others) if (found := files.holdings(other, cache_dir))}
    theirs |= {other.name: {_real(Path(other.path))} for other in others if other.path}
    kept = {name for name, found in theirs.items() if found & mine or found & {_real(path) for path in mine}}
    needed = {path for name in kept for path in theirs[name]}
    gone = sorted(str(path) for path in mine if path not in needed and _real(path) not in needed)
    places = [parse(source.checkpoint) for source in entry.sources]
    repositories = {str(hub_cache() / place.folder) for place in places if isinstance(place, HubPlace)}
    # Path's own is_dir raises where nobody may look.
    repositories = {path for path in repositories if os.path.isdir(path) and Path(path).name not in busy}  # noqa: PTH112
    tags = [place.tag for place in places if isinstance(place, TagPlace)]
    tag = tags[0] if tags and gone else ""
    return Plan(Removing(entry.name, gone, sorted(repositories), tag), sorted(kept))


def _real(path: Path) -> Path:
    return Path(os.path.realpath(path))  # Path.resolve raises for a link to itself


def _near(entry: Entry, others: list[Entry]) -> list[Entry]:
    """Return the entries whose files may be the same: those of the same repositories or places."""
    places = {_root(source.checkpoint) for source in entry.sources}
    return [other for other in others if any(_root(source.checkpoint) in places for source in other.sources)]


def _root(checkpoint: str) -> str:
    place = parse(checkpoint)
    return place.repo if isinstance(place, HubPlace) else checkpoint


class Removals:
    """The deletions under way."""

    def __init__(self) -> None:
        """Nothing is being deleted."""
        self._by_job: dict[str, _Deletion] = {}

    def handlers(self) -> dict[type, Handler]:
        """Return what each message means."""
        return {DeleteModel: self._delete, Removed: self._result, RemoveFailed: self._result}

    def _delete(self, house: House, peer: str, call: DeleteModel, _payload: bytes) -> None:
        download = house.downloads.running_for(call.model)
        entry = download.pending if download and download.pending else house.models.resolve(call.model)
        house.models.check_stays(entry.name)
        if entry.path:
            reason = f"model {entry.name} is a file of the extra models directory: whoever put it there takes it away"
            raise invalid(reason, "model_name")
        if not self._known(house, entry):
            raise Failure(Code.MODEL_NOT_FOUND, f"model {entry.name} is not downloaded", model=entry.name).raised()
        house.models.leaving.add(entry.name)
        deletion = _Deletion(entry, peer, call.number)
        why = Failure(Code.CONFLICT, f"model {entry.name} was deleted while it was downloaded", model=entry.name)
        unload = partial(self._step, house, deletion, self._unload)
        if not fetching.stop(house, entry.name, why, unload):
            unload()

    def _known(self, house: House, entry: Entry) -> bool:
        """Return whether there is anything of it: a download, an entry of a user's, a worker, or a file."""
        if house.downloads.running_for(entry.name) or house.models.registered(entry.name):
            return True
        place = house.scheduler.places.get(entry.name)
        if place is not None and place.seat is not None:
            return True
        wanted = plan(entry, [], house.settings.cache_dir, set()).order
        return bool(wanted.files or any(_leftovers(Path(each)) for each in wanted.repositories))

    def _step(self, house: House, deletion: _Deletion, step: Callable[[House, _Deletion], None]) -> None:
        """Go on, unless something is in the way: then it is told, and the rest of the model stays."""
        try:
            step(house, deletion)
        except LemonbusError as problem:
            self._end(house, deletion, problem.failure)

    def _unload(self, house: House, deletion: _Deletion) -> None:
        name = deletion.entry.name
        for called in [called for called, meant in house.running_names.items() if meant == name]:
            del house.running_names[called]
        _turn_away(house, name)
        place = house.scheduler.places.get(name)
        if place is None or not place.unloadable:
            self._remove(house, deletion)
            return
        number = house.call_self(lambda _result: self._step(house, deletion, self._remove))
        house.scheduler.unload_asked("", number, name)

    def _remove(self, house: House, deletion: _Deletion) -> None:
        entry = deletion.entry
        _turn_away(house, entry.name)
        busy = {folder for model in house.downloads.running() for folder in _folders(house, model)}
        wanted = plan(entry, house.models.others(entry), house.settings.cache_dir, busy)
        house.models.forget(entry)
        house.scheduler.forget_use(entry.name)
        house.stats_by_model.pop(entry.name, None)
        deletion.kept_for = wanted.kept_for
        if wanted.empty:
            self._end(house, deletion, None)
            return
        job, _ = jobs.start(house, MODULE, self._ended, wanted.order)
        self._by_job[job] = deletion

    def _result(self, house: House, job: str, message: Removed | RemoveFailed, _payload: bytes) -> None:
        deletion = self._by_job.get(job)
        if deletion is not None:
            deletion.result = message
        jobs.release(house, job)

    def _ended(self, house: House, job: str, why: str) -> None:
        deletion = self._by_job.pop(job)
        result = deletion.result
        failure = result.failure if isinstance(result, RemoveFailed) else None
        if result is None:
            reason = f"deleting {deletion.entry.name} was interrupted ({why}); delete it again"
            failure = Failure(Code.INTERNAL, reason, model=deletion.entry.name)
        deletion.files = result.files if isinstance(result, Removed) else 0
        self._end(house, deletion, failure)

    def _end(self, house: House, deletion: _Deletion, failure: Failure | None) -> None:
        name = deletion.entry.name
        house.models.leaving.discard(name)
        if failure is not None:
            log.error("not deleted", model=name, reason=failure.message, detail=failure.detail)
        else:
            log.info("deleted", model=name, files=deletion.files, kept_for=deletion.kept_for)
        told = failure or Deleted(name, deletion.files, deletion.kept_for)
        jobs.tell(house, deletion.peer, deletion.number, told)


class _Deletion:
    def __init__(self, entry: Entry, peer: str, number: int) -> None:
        self.entry = entry
        self.peer = peer
        self.number = number
        self.kept_for: list[str] = []
        self.files = 0
        self.result: Removed | RemoveFailed | None = None


def _turn_away(house: House, name: str) -> None:
    """Refuse everybody who waits for a model that will not come back."""
    place = house.scheduler.places.get(name)
    if place is not None:
        place.wanted = False
        house.scheduler.give_up(place, Failure(Code.MODEL_NOT_FOUND, f"model {name} was deleted", model=name))


def _folders(house: House, model: str) -> list[str]:
    download = house.downloads.running_for(model)
    places = [parse(source.checkpoint) for source in download.sources] if download else []
    return [place.folder for place in places if isinstance(place, HubPlace)]


def _leftovers(repository: Path) -> bool:
    """Return whether a download of this repository broke off."""
    try:
        return any(path.name.endswith(".incomplete") for path in (repository / "blobs").iterdir())
    except OSError:
        return False
