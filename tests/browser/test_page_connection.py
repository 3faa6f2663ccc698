"""The page while its server is silent, ends, and comes back."""

from __future__ import annotations

from tests.browser.conftest import OpenPage, StartStandIn
from tests.browser.overviews import failed, overview, ready
from tests.support.fakes.overview_server import OverviewServer

GONE = [r"net::ERR_"]
"""What Chromium says of requests that fail."""


def test_the_page_follows_the_server(start_stand_in: StartStandIn, open_page: OpenPage) -> None:
    """A model comes, changes, fails and goes."""
    server = start_stand_in(overview({}))
    page = open_page(server)
    card = page.by_role("main").get_by_role("listitem").filter(has_text="the-model")
    page.wait("document.querySelector('.connection').dataset.state === 'live'", "it is connected")
    assert card.count() == 0
    server.send("patch", {"models": {"the-model": {"state": "loading"}}})
    card.get_by_text("loading").first.wait_for()
    server.send("patch", {"models": {"the-model": ready(running=2)}})
    card.get_by_text("ready").first.wait_for()
    server.send("patch", {"models": {"the-model": None, "another": failed("the file is not GGUF")}})
    page.by_role("main").get_by_text("another").first.wait_for()
    card.wait_for(state="detached")


def test_a_server_that_comes_back_is_found(start_stand_in: StartStandIn, open_page: OpenPage) -> None:
    """The page is not loaded again, and shows what the new server is like."""
    with OverviewServer(overview({"old": ready()})) as server:
        page = open_page(server)
        page.may_fail = GONE
        page.by_role("main").get_by_text("old").first.wait_for()
        page.tab.evaluate("window.stays = true")
    page.wait("document.querySelector('.connection').dataset.state === 'lost'", "the page says that it is lost")
    assert page.by_role("main").get_by_text("old").count() > 0, "what was known last stays"
    again = start_stand_in(overview({"new": ready()}), server.port)
    page.by_role("main").get_by_text("new").first.wait_for()
    assert page.by_role("main").get_by_text("old").count() == 0
    assert (again.streams, page.tab.evaluate("window.stays")) == (1, True)
    announced = page.by_role("status").filter(has_text="Connected to the server again")
    announced.first.wait_for(state="attached")


def test_a_silent_server_is_noticed(start_stand_in: StartStandIn, open_page: OpenPage) -> None:
    """A message comes each second, so nothing for some seconds means that the server or the network stands still."""
    server = start_stand_in(overview({}), silent=True)
    page = open_page(server)
    page.wait("document.querySelector('.connection').dataset.state === 'silent'", "the page says so")
    server.send("patch", {"time": server.overview["time"] + 9})
    page.wait("document.querySelector('.connection').dataset.state === 'live'", "it is heard again")
