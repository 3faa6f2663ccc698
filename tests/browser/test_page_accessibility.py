"""Every view of the page, as wide as a telephone or a large screen, light and dark, with the keyboard alone."""

from __future__ import annotations

import pytest

from tests.browser.conftest import OpenPage, StartStandIn
from tests.browser.overviews import LONG, START, ended, failed, hour, overview, ready, request
from tests.support.browser import BrowserPage

WIDTHS = (400, 1000, 1600)
AUDITED = 1000
"""The width at which axe-core looks at everything: colours and names do not depend on it."""
SIDEWAYS = """() => [...document.querySelectorAll("body *")].filter((each) => each.getBoundingClientRect().right > innerWidth + 1
  && !each.closest(".table-wrap, pre, dialog, [data-scrolls]")).map((each) => each.outerHTML.slice(0, 120)).slice(0, 3)"""
"""What reaches beyond the window, apart from parts that scroll by themselves."""
REACHABLE = """() => {
  const wanted = "a[href], button, input, select, textarea, summary, [tabindex='0']";
  const seen = (each) => each.checkVisibility({ visibilityProperty: true }) && !each.disabled && each.tabIndex >= 0;
  return [...document.querySelectorAll(wanted)].filter(seen).map((each) => (each.dataset.testNumber ??= String(Math.random())));
}"""
NAMED = {
    "button",
    "link",
    "textbox",
    "searchbox",
    "combobox",
    "checkbox",
    "radio",
    "slider",
    "spinbutton",
    "img",
    "dialog",
    "navigation",
}
"""Roles that are of no use without a name."""
WHAT = "(number) => document.querySelector(`[data-test-number='${number}']`)?.outerHTML.slice(0, 120)"
FOCUSED = """() => {
  const focused = document.activeElement;
  return focused === document.body ? "" : (focused.dataset.testNumber ??= String(Math.random()));
}"""
MODELS = {
    "ready": ready(running=2, waiting=3, pinned=True, tokens_per_second=42.5, first_token_p50=0.2),
    LONG: ready(7, command=["llama-server", "--ctx-size", "8192"]),
    "loading": {
        "state": "loading",
        "load": {"stage": "starting", "asked_at": START - 3, "done": 4, "total": 9, "unit": "bytes"},
    },
    "failed": failed("llama-server exited with code 1"),
    "died": {
        "state": "unloaded",
        "deaths": {"count": 2, "last": [{"at": START - 60, "code": "engine_died", "reason": "killed by signal 9"}]},
    },
}
NODES = {
    "head": {"state": "ready", "since": START - 90, "cpus": 8, "devices": ["cpu"], "models": [LONG, "ready"]},
    "gpu2": {"state": "lost", "since": START - 9, "address": "10.0.0.2"},
}
BUSY = overview(
    MODELS,
    nodes=NODES,
    running=2,
    waiting=3,
    requests={f"g:{number}": request(number, LONG) for number in range(5)},
    requests_total=5,
    ended={str(number): ended(number, "ready", code="engine_died" * (number % 2)) for number in range(20)},
)


def views(page: BrowserPage) -> list[str]:
    """Return the names of all views."""
    links = page.by_role("navigation", "Views").get_by_role("link")
    links.first.wait_for()
    return links.all_text_contents()


def show(page: BrowserPage, view: str) -> None:
    """Click on a view's link, and wait until the view is there."""
    page.tab.locator("main h1").wait_for(state="attached")
    link = page.by_role("navigation", "Views").get_by_role("link", name=view, exact=True)
    if link.get_attribute("aria-current") != "page":
        page.tab.evaluate("document.querySelector('main h1').dataset.testFormer = ''")
        link.click()
        page.tab.locator("main h1:not([data-test-former])").wait_for(state="attached")


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", WIDTHS)
def test_every_view_fits_and_is_accessible(
    start_stand_in: StartStandIn, open_page: OpenPage, width: int, dark: bool
) -> None:
    server = start_stand_in(BUSY)
    server.history = hour()
    page = open_page(server, width=width, dark=dark)
    page.may_fail = [r"404 \(Not Found\)"]  # the stand-in has no models and no usage
    for view in views(page):
        show(page, view)
        assert page.tab.evaluate("document.documentElement.scrollWidth") <= width, page.tab.evaluate(SIDEWAYS)
        assert width != AUDITED or page.audit() == [], view


def test_the_tab_key_reaches_everything(start_stand_in: StartStandIn, open_page: OpenPage) -> None:
    page = open_page(start_stand_in(BUSY))
    page.may_fail = [r"404 \(Not Found\)"]
    for view in views(page):
        show(page, view)
        page.tab.locator("#skip").focus()
        expected = set(page.tab.evaluate(REACHABLE))
        reached: set[str] = set()
        while (focused := page.tab.evaluate(FOCUSED)) not in {*reached, ""}:
            reached.add(focused)
            page.tab.keyboard.press("Tab")
        missed = [page.tab.evaluate(WHAT, number) for number in expected - reached]
        assert missed == [], view
        assert len(expected) > 3, view


def test_the_skip_link_leads_to_the_content(start_stand_in: StartStandIn, open_page: OpenPage) -> None:
    page = open_page(start_stand_in(BUSY))
    views(page)
    page.tab.keyboard.press("Tab")
    assert page.tab.evaluate("document.activeElement.textContent") == "Skip to the content"
    page.tab.keyboard.press("Enter")
    assert page.tab.evaluate("document.activeElement.tagName") == "MAIN"


def test_a_screen_reader_finds_the_parts_of_the_page(start_stand_in: StartStandIn, open_page: OpenPage) -> None:
    page = open_page(start_stand_in(BUSY))
    page.may_fail = [r"404 \(Not Found\)"]
    for view in views(page):
        show(page, view)
        nodes = page.accessible()
        roles = [role for role, _ in nodes]
        assert {"banner", "navigation", "main", "heading", "status"} <= set(roles), view
        assert roles.count("main") == 1, view
        unnamed = [role for role, name in nodes if not name and role in NAMED]
        assert unnamed == [], view
