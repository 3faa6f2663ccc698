"""The page with many models, and after as many messages as hours bring: it holds its memory."""

from __future__ import annotations

from typing import Any

from tests.browser.conftest import OpenPage, StartStandIn
from tests.browser.overviews import START, ended, hour, overview, ready, request, sample
from tests.support.fakes.overview_server import OverviewServer

MODELS = 500
UPDATES = 1500
IN_FLIGHT, LAST = 20, 50
GROWTH = 1.2
"""How many times as many nodes and listeners there may be after :data:`UPDATES` more messages."""
GROWTH_BYTES = 600_000
"""If each message were kept, it would be three times as many."""


def test_all_of_many_models_are_shown(start_stand_in: StartStandIn, open_page: OpenPage) -> None:
    """A message about one of them changes the part of the page that shows it, and no other."""
    server = start_stand_in(overview({f"model-{number:03}": ready(number) for number in range(MODELS)}))
    page = open_page(server)
    main = page.by_role("main")
    page.by_role("button", f"Show all {MODELS} models").click()
    page.wait(
        "(models) => document.querySelectorAll('main h2, main h3').length >= models", "there is a card for each", MODELS
    )
    page.tab.evaluate("""() => {
        window.cards = [...document.querySelectorAll("main li")].filter((card) => /model-\\d{3}/.test(card.textContent));
    }""")
    assert page.tab.evaluate("cards.length") == MODELS
    server.send("patch", {"time": START + 1, "models": {"model-250": {"state": "unloading"}}})
    main.get_by_role("listitem").filter(has_text="model-250").get_by_text("unloading").first.wait_for()
    assert page.tab.evaluate("cards.every((card) => card.isConnected)"), "the cards are still the same elements"


def test_hours_of_messages_leave_nothing_behind(start_stand_in: StartStandIn, open_page: OpenPage) -> None:
    server = start_stand_in(overview({f"model-{number}": ready(number) for number in range(10)}))
    server.history = hour()
    page = open_page(server)
    _send(server, 0, 200)
    _wait_for_last(page, 200)
    before = page.counters()
    _send(server, 200, 200 + UPDATES)
    _wait_for_last(page, 200 + UPDATES)
    after = page.counters()
    assert after[0] < GROWTH * before[0], f"DOM nodes: {before[0]}, then {after[0]}"
    assert after[1] < GROWTH * before[1], f"listeners: {before[1]}, then {after[1]}"
    assert after[2] < before[2] + GROWTH_BYTES, f"bytes of the heap: {before[2]}, then {after[2]}"


def _send(server: OverviewServer, first: int, end: int) -> None:
    """In each second a request comes and one ends; every ten seconds there is a sample, and another model has died."""
    for number in range(first, end):
        server.send("patch", _patch(number))
        if number % 10 == 0:
            server.send("sample", sample(START + number, number))


def _patch(number: int) -> dict[str, Any]:
    model = f"model-{number % 10}"
    return {
        "time": START + number,
        "server": {"version": f"1.{number + 1}"},
        "models": {model: ready(number, running=number % 4), f"gone-{number}": ready(), f"gone-{number - 1}": None},
        "requests": {f"g:{number}": request(number, model), f"g:{number - IN_FLIGHT}": None},
        "ended": {str(number): ended(number, model), str(number - LAST): None},
    }


def _wait_for_last(page: Any, end: int) -> None:
    page.wait(
        "(version) => document.querySelector('.version').textContent === version && !!document.querySelector('main h3')",
        "all is shown",
        f"1.{end}",
    )
