"""Who must leave, so that a model can be loaded. Pure, and silent: asking is not acting."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from protocol.recipes import Npu


class Tenant(NamedTuple):
    """Somebody who holds a loaded place."""

    model: str
    type: str
    last_use: float
    busy: bool
    pinned: bool = False
    movable: bool = True
    """False while it is being loaded or is already promised to somebody: it can neither stay idle nor leave."""
    leaving: bool = False
    """It is on its way out: its place and memory come free without anybody's doing."""
    draining: bool = False
    """It was asked to make room before: asking somebody else now would let nobody ever finish."""
    memory: int = 0
    npu: str = ""
    """How it holds the NPU: a value of :class:`~protocol.recipes.Npu`, empty if it does not."""


class Wish(NamedTuple):
    """The model that wants a place, and what it needs (bytes; 0: unknown)."""

    model: str
    type: str
    memory: int = 0
    npu: str = ""
    """As a tenant's."""


class Budget(NamedTuple):
    """What there is: places per type, and bytes of memory free right now (0: unknown)."""

    places: int
    memory: int = 0


class Fits(NamedTuple):
    """There is room now."""


class Wait(NamedTuple):
    """There will be room when those who are leaving have left, or a load has ended."""


class Evict(NamedTuple):
    """These must leave first, idle ones at once, busy ones when they are done."""

    models: list[str]


class Blocked(NamedTuple):
    """Nobody may leave: these are pinned."""

    pins: list[str]


Verdict = Fits | Wait | Evict | Blocked


def decide(wish: Wish, tenants: Sequence[Tenant], budget: Budget) -> Verdict:
    """Return how ``wish`` gets its place.

    The NPU first: whoever cannot be there beside ``wish`` leaves it, busy or not.  Then places: least recently used idle tenant of the same type, else the least recently used busy one,
    never a pinned one.  Then memory: what is free, plus what those who leave give back; idle tenants of any
    type leave, least recently used first, until it suffices.  When even that does not, it is tried all the
    same: the estimate is coarse, and a model file is mapped, not copied.
    """
    on_npu = [tenant for tenant in tenants if _clash(wish, tenant)]
    leave = [tenant for tenant in on_npu if not tenant.leaving]
    if pins := sorted(tenant.model for tenant in leave if tenant.pinned):
        return Blocked(pins)
    if not all(tenant.movable for tenant in leave):
        return Wait()
    rivals = [tenant for tenant in tenants if tenant.type == wish.type]
    staying = [tenant for tenant in rivals if not tenant.leaving and tenant not in leave]
    if len(staying) >= budget.places:
        movable = sorted(
            (tenant for tenant in staying if tenant.movable and not tenant.pinned),
            key=lambda tenant: (tenant.busy, not tenant.draining, tenant.last_use),
        )
        surplus = len(staying) - budget.places + 1
        if len(movable) < surplus:
            if all(tenant.pinned for tenant in staying):
                return Blocked(sorted(tenant.model for tenant in staying))
            return Wait()
        leave += movable[:surplus]
    leave += _for_memory(wish, tenants, leave, budget)
    if leave:
        return Evict([tenant.model for tenant in leave])
    if (
        on_npu
        or len(rivals) >= budget.places
        or (_short(wish, budget, ()) and any(tenant.leaving for tenant in tenants))
    ):
        return Wait()
    return Fits()


def _clash(wish: Wish, tenant: Tenant) -> bool:
    """Return whether the two cannot be on the NPU together."""
    if not wish.npu or not tenant.npu:
        return False
    return Npu.ALONE in (wish.npu, tenant.npu) or wish.type == tenant.type


def _short(wish: Wish, budget: Budget, giving: Sequence[Tenant]) -> int:
    if not wish.memory or not budget.memory:
        return 0
    return max(0, wish.memory - budget.memory - sum(tenant.memory for tenant in giving))


def _for_memory(wish: Wish, tenants: Sequence[Tenant], leave: Sequence[Tenant], budget: Budget) -> list[Tenant]:
    giving = [*leave, *(tenant for tenant in tenants if tenant.leaving)]
    idle = sorted(
        (
            tenant
            for tenant in tenants
            if tenant.movable and not tenant.busy and not tenant.pinned and not tenant.leaving and tenant not in leave
        ),
        key=lambda tenant: tenant.last_use,
    )
    more: list[Tenant] = []
    while idle and _short(wish, budget, [*giving, *more]):
        more.append(idle.pop(0))
    return more
