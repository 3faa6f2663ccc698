"""Lines of batches, which delay no other request: when one may run, when it gives its slot back, what may leave for its model. Pure.

A line is refused instead of being queued if it cannot run at once, and is sent again later. Only one that has its model loaded
waits. Of two requests, a line of a batch always comes second, because its order is higher (:data:`BATCH_ORDER`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from protocol.failures import Code, Failure
from protocol.messages.work import Cancel, SubmitRequest
from supervisor.scheduler.effects import SendMessage
from supervisor.scheduler.model_states import ModelState
from supervisor.scheduler.queue.work_items import is_of_batch
from supervisor.scheduler.scheduled_model import ScheduledModel
from supervisor.scheduler.state import SchedulerState

UNUSED_S: Final = 300.0
"""A model that was used in this time does not leave for a batch."""
RETRY_S: Final = 1.0
LOAD_RETRY_S: Final = 15.0


def _waits(model: str, why: str, retry_after: float) -> Failure:
    return Failure(Code.BATCH_WAITS, f"Model {model}: {why}", model, retry_after=retry_after)


def refusal(state: SchedulerState, name: str, request: SubmitRequest) -> Failure | None:
    """Return why a line cannot run now; None if a slot is free for it, or if it may have its model loaded."""
    known = state.replica_sets.get(name)
    if known is None:
        return None
    ready = [each for each in known.replicas if each.state is ModelState.READY]
    if known.queue or known.loaders:
        return _waits(name, "other requests wait for the model", RETRY_S)
    if ready and not any(each.busy + min(request.weight, each.slots) <= each.slots for each in ready):
        return _waits(name, "no slot is free", RETRY_S)
    return None


def give_way(state: SchedulerState, model: ScheduledModel) -> None:
    """End lines that hold slots for which other requests wait, or that keep the model from being unloaded."""
    held = {key: each for key, each in model.grants.items() if is_of_batch(each)}
    if not held or model.worker is None or not model.worker.serves:
        return
    wanted = len(held)
    if model.state is ModelState.READY:
        wanted = sum(not is_of_batch(each) and not each.is_read for each in model.queue)
    wanted -= sum(each.gives_way for each in held.values())
    for key in [key for key, each in held.items() if not each.gives_way][::-1][: max(0, wanted)]:
        held[key].gives_way = True
        state.emit(SendMessage(model.worker.id, Cancel(*key, Code.BATCH_WAITS)))
        state.refuse(key, _waits(model.name, "another request needs its slot", RETRY_S))


def refusal_to_evict(
    state: SchedulerState, model: ScheduledModel, evicted: Sequence[str], now: float
) -> Failure | None:
    """Return why a model is not loaded in place of others; None if something besides lines of batches waits for it, or none was used lately."""
    if model.loaders or not model.queue or not all(map(is_of_batch, model.queue)):
        return None
    used = [each for each in map(state.models.get, evicted) if each is not None]
    if not any(each.grants or now - each.last_use < UNUSED_S for each in used):
        return None
    return _waits(model.name, "models that were just used would have to leave for it", LOAD_RETRY_S)
