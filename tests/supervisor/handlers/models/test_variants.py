"""Listings of repositories: calls for one repository share a job, a key has one at a time, and all together four."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from protocol.config.settings import Settings
from protocol.failures import Code, Failure, LemonbusError
from protocol.messages.model_files import Inspected, ListVariants, StartInspection, Variants
from supervisor.handlers.models.variants import MAX_JOBS, VariantQueries


class Listings:
    """The handlers of listings without processes."""

    def __init__(self) -> None:
        self.begun: list[str] = []
        self.answers: dict[int, object] = {}
        self._numbers = iter(range(1, 100))
        loop: Any = SimpleNamespace(call_later=lambda *_: None)
        jobs: Any = SimpleNamespace(start=self._start, dismiss=lambda _job: None)
        calls: Any = SimpleNamespace(reply=self._answer)
        self._handlers = VariantQueries(Settings(), loop, jobs, calls).handlers()

    def _start(self, _module: str, _ended: Any, order: StartInspection) -> str:
        self.begun.append(order.checkpoint)
        return order.checkpoint

    def _answer(self, _peer: str, number: int, report: object) -> None:
        self.answers[number] = report

    def ask(self, checkpoint: str, key: str = "") -> int:
        call = ListVariants(next(self._numbers), checkpoint, key)
        self._handlers[ListVariants]("g1", call, b"")
        return call.number

    def refusal(self, checkpoint: str, key: str = "") -> Failure:
        with pytest.raises(LemonbusError) as caught:
            self.ask(checkpoint, key)
        assert caught.value.failure.code is Code.OVERLOADED
        assert caught.value.failure.retry_after
        return caught.value.failure

    def found(self, checkpoint: str) -> None:
        report = Variants(checkpoint, "llamacpp", "", [], [], [])
        self._handlers[Inspected](checkpoint, Inspected(checkpoint, report), b"")


@pytest.fixture
def listings() -> Listings:
    return Listings()


def test_a_key_has_one_repository_listed_at_a_time(listings: Listings) -> None:
    """A few requests of one key to a slow hub used to prevent an administrator from listing any."""
    listings.ask("a/one", "alice")
    assert "for the API key alice" in listings.refusal("a/two", "alice").message
    listings.ask("b/one", "bob")
    listings.ask("c/one")
    listings.ask("c/two")
    assert listings.begun == ["a/one", "b/one", "c/one", "c/two"]
    listings.found("a/one")
    listings.ask("a/two", "alice")


def test_a_key_may_wait_for_a_listing_that_another_one_began(listings: Listings) -> None:
    listings.ask("a/one", "alice")
    numbers = [listings.ask("b/one", "bob"), listings.ask("b/one", "alice")]
    listings.found("b/one")
    assert sorted(listings.answers) == numbers


def test_all_together_have_four_at_a_time(listings: Listings) -> None:
    for number in range(MAX_JOBS):
        listings.ask(f"a/{number}")
    assert f"{MAX_JOBS} repositories" in listings.refusal("a/more").message
