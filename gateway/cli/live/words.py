"""Says in words what a model does, how long it has been unused, and why it is slow or not loaded. Pure."""

from __future__ import annotations

from typing import Final

from gateway.cli.output import duration
from protocol.messages.engines import LoadStage
from protocol.messages.model_overview import ModelOverview

ABSENT: Final = "absent"
NO_MODEL: Final = "No model is loaded; the first request for one loads it."
_SERVING: Final = frozenset({"ready", "draining"})
"""States of models that can answer."""
_STATES: Final = {"backing_off": "failed", "draining": "unloading", "restarting": "engine restarts"}
"""State → what it is called, if that differs."""
SLOW_FIRST_TOKEN_S: Final = 5.0
"""From these values on, the page calls a model slow as well."""
SLOW_TOKENS_PER_SECOND: Final = 5.0
SLOW_WAIT_S: Final = 2.0
DAY_S: Final = 86400.0


def state_of(model: ModelOverview, now: float) -> str:
    """Return a model's state; while it is loaded, with the stage, the progress and the age of the load."""
    if model.load is not None:
        load = model.load
        of_stage = load.total and load.stage is not LoadStage.WAITING_FOR_NODE
        done = f" {load.done / load.total:.0%}" if of_stage else ""
        where = stage_of(load.stage, load.node, load.done).removeprefix(load.stage)
        return f"{load.stage}{done}{where}, {duration(max(0.0, now - load.asked_at))}"
    if model.state == ABSENT:
        return "failed" if model.failure else "not loaded"
    return _STATES.get(model.state, model.state)


def stage_of(stage: LoadStage, node: str, done: int) -> str:
    """Return the stage of a load, with its node. ``done``: the load's, which for a lost node is the seconds since then."""
    if stage is LoadStage.WAITING_FOR_NODE:
        return f"{stage} {node}, lost {duration(done)} ago"
    return f"{stage} ({node})" if node else stage


def use_of(model: ModelOverview, now: float) -> str:
    """Return since when a loaded model has been idle, and when it is unloaded; empty if it is not loaded."""
    is_idle = model.state in _SERVING and model.last_use and not _in_use(model)
    idle = f"idle {duration(max(0.0, now - model.last_use))}" if is_idle else ""
    return ", ".join(filter(None, (idle, stay_of(model, now))))


def stay_of(model: ModelOverview, now: float) -> str:
    """Return why or until when a model stays loaded; empty if it is not, or nothing is known."""
    if model.state not in _SERVING:
        return ""
    in_use = "in use" if _in_use(model) else ""
    if model.pinned:
        return ", ".join(filter(None, (in_use, "pinned")))
    return in_use or (f"unloaded in {duration(max(0.0, model.expires_at - now))}" if model.expires_at else "")


def _in_use(model: ModelOverview) -> bool:
    return bool(model.running or model.waiting)


def problem_of(model: ModelOverview, now: float) -> str:
    """Return why a model is not loaded, or slow; empty if it is neither."""
    if model.failure is not None:
        failure, left = model.failure, model.failure.retry_at - now
        times = f" {failure.failures} times" if failure.failures > 1 else ""
        again = f"tried again in {duration(left + 1)}" if left > 0 else "the next request tries again"
        return f"failed{times}: {failure.message.strip()}; {again}"
    if model.load is not None and model.waiting:
        return f"{_requests(model.waiting)} for its load"
    if model.state not in _SERVING:
        return ""
    if model.waiting:
        soon = min((each.wait_s for each in model.queue if each.wait_s), default=0.0)
        about = f", the next one for about {_seconds(soon)}" if soon else ""
        return f"{_requests(model.waiting)} for one of {model.slots or '?'} slots{about}"
    return _slow(model)


def _slow(model: ModelOverview) -> str:
    reasons = []
    if model.queue_wait_p50 >= SLOW_WAIT_S:
        reasons.append(f"requests waited {_seconds(model.queue_wait_p50)} for a slot")
    if model.first_token_p50 >= SLOW_FIRST_TOKEN_S:
        reasons.append(f"the first token comes after {_seconds(model.first_token_p50)}")
    if model.type == "llm" and 0 < model.tokens_per_second < SLOW_TOKENS_PER_SECOND:
        reasons.append(f"{model.tokens_per_second:.1f} tokens/s" + (" on the CPU" if model.device == "cpu" else ""))
    return f"slow: {', '.join(reasons)}" if reasons else ""


def _requests(count: int) -> str:
    return "1 request waits" if count == 1 else f"{count} requests wait"


def _seconds(value: float) -> str:
    return f"{value:.1f} s" if value < 10 else duration(value)


def attention(model: ModelOverview, now: float) -> int:
    """Return how much a model needs attention: the lower, the more."""
    died = model.deaths is not None and any(now - death.at < DAY_S for death in model.deaths.last)
    ranks = (model.failure is not None, bool(model.waiting), bool(problem_of(model, now)), died, bool(model.running))
    return next((rank for rank, applies in enumerate(ranks) if applies), len(ranks) + (model.state not in _SERVING))
