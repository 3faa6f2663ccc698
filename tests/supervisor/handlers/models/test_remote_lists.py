"""When other servers are asked for their lists, and which answers are used."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from protocol.config.model_settings import RemoteSettings
from protocol.config.settings import Settings
from protocol.messages.remote_models import RemoteList, RemoteModel, RemotesListed, StartRemoteListing
from supervisor.handlers.models.remote_lists import RemoteLists

A, B = [RemoteModel("a")], [RemoteModel("b")]


class Listing:
    """The lists of two servers, without processes and time. Jobs are named by their numbers."""

    def __init__(self) -> None:
        self.now = 100.0
        self.timer: Callable[[], None] = lambda: None
        self.orders: list[list[str]] = []
        self.ended: list[Callable[[str, str], None]] = []
        self.dismissed: list[str] = []
        self.taken: list[tuple[str, list[RemoteModel]]] = []
        url = "http://127.0.0.1:9/v1"
        remotes = {"slow": RemoteSettings(url=url, refresh=60), "quick": RemoteSettings(url=url, refresh=10)}
        loop: Any = SimpleNamespace(now=lambda: self.now, call_later=self._call_later)
        jobs: Any = SimpleNamespace(start=self._start, dismiss=self.dismissed.append)
        models: Any = SimpleNamespace(
            list_remote=lambda *taken: self.taken.append(taken), remote=SimpleNamespace(listed=lambda _name: False)
        )
        self.lists = RemoteLists(Settings(remotes=remotes), loop, models, jobs)
        self.lists.start()

    def _call_later(self, _seconds: float, callback: Callable[[], None]) -> None:
        self.timer = callback

    def _start(self, _module: str, ended: Callable[[str, str], None], order: StartRemoteListing) -> str:
        self.orders.append(order.remotes)
        self.ended.append(ended)
        return str(len(self.orders))

    def after(self, seconds: float) -> list[list[str]]:
        """Let time pass; return the orders so far."""
        self.now += seconds
        self.timer()
        return self.orders

    def arrive(self, job: int, *lists: RemoteList, complete: bool = False) -> None:
        message = RemotesListed(list(lists), complete)
        self.lists.handlers()[RemotesListed](str(job), message, b"")


@pytest.fixture
def listing() -> Listing:
    return Listing()


def test_a_list_is_used_when_it_arrives_and_a_slow_server_holds_up_no_other_one(listing: Listing) -> None:
    assert listing.orders == [["slow", "quick"]]
    listing.arrive(1, RemoteList("quick", A))
    assert (listing.taken, listing.dismissed) == ([("quick", A)], [])
    assert listing.after(10)[1:] == [["quick"]]
    listing.arrive(2, RemoteList("quick", B), complete=True)
    listing.arrive(1, RemoteList("quick", A), RemoteList("slow", problem="it is late"), complete=True)
    assert listing.taken == [("quick", A), ("quick", B)], "a job repeats what it has read before"
    assert listing.dismissed == ["2", "1"]
    assert "it is late" in listing.lists.problems()[0]


def test_a_server_that_has_not_answered_is_not_asked_again(listing: Listing) -> None:
    assert listing.after(10) == [["slow", "quick"]]
    listing.arrive(1, RemoteList("quick", A))
    assert listing.after(50)[1:] == [["quick"]]
    listing.ended[0]("1", "killed")
    assert listing.after(60)[2:] == [["slow"]], "its job has ended, so it can be asked"


def test_a_server_that_is_away_and_comes_back(listing: Listing) -> None:
    listing.arrive(1, RemoteList("slow", A), RemoteList("quick", problem="it is away"), complete=True)
    assert listing.lists.problems() == ["remotes.quick: it is away; none of its models are listed"]
    listing.after(10)
    listing.arrive(2, RemoteList("quick", B), complete=True)
    assert (listing.lists.problems(), listing.taken) == ([], [("slow", A), ("quick", B)])


def test_what_an_earlier_supervisors_job_has_read_is_not_used_but_the_job_may_end(listing: Listing) -> None:
    listing.arrive(7, RemoteList("quick", A), complete=True)
    assert (listing.taken, listing.dismissed) == ([], ["7"])
