"""The overview in front of a real server: what happens there is seen, and an administrator's clicks have their effect."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.browser.conftest import OpenPage
from tests.conftest import StartServer
from tests.faults.supervisors.recoveries import kill_supervisor
from tests.support import processes
from tests.support.browser import BrowserPage
from tests.support.clients.http_exchange import HttpExchange
from tests.support.server import LemonbusServer

if TYPE_CHECKING:
    from playwright.sync_api import Locator

CHAT, LOOP, TALE = "extra.tiny-chat", "extra.tiny-loop", "extra.tiny-tale"
ENDLESS = 60_000
"""Tokens of an answer that does not end before the test ends it."""


@pytest.fixture(scope="module")
def server(start_module_server: StartServer) -> LemonbusServer:
    """A server whose models have one slot each."""
    names = ("tiny-chat", "tiny-loop", "tiny-tale")
    return start_module_server(*names, max_loaded_models=3, slots=1, ctx_size=65_536, gateway_workers=1)


def stream(server: LemonbusServer, request_id: str) -> HttpExchange:
    """Start an answer that does not end."""
    return server.client.start_chat(LOOP, {"X-Request-ID": request_id}, max_tokens=ENDLESS, stream=True)


def card(page: BrowserPage, model: str) -> Locator:
    heading = page.by_role("heading", model, exact=True)
    return page.by_role("main").get_by_role("listitem").filter(has=heading)


def row(page: BrowserPage, table: str, request_id: str) -> Locator:
    return page.by_role("table", table).get_by_role("row").filter(has_text=request_id)


def test_a_request_is_seen_and_cancelled(server: LemonbusServer, open_page: OpenPage) -> None:
    """Its client gets the reason, and the request that waited for its slot runs."""
    page = open_page(server)
    first = stream(server, "first-request").until(lambda exchange: exchange.messages)
    row(page, "Requests in flight", "first-request").get_by_text("running").wait_for()
    second = stream(server, "second-request")
    row(page, "Requests in flight", "second-request").get_by_text("waiting").wait_for()
    page.by_role("main").get_by_text(f"1 request for {LOOP}").wait_for()
    page.by_role("button", "Cancel first-request").click()
    page.by_role("dialog").get_by_role("button", name="Cancel the request").click()
    first.finish()
    assert "cancelled_by_operator" in first.messages[-1].data
    second.until(lambda exchange: exchange.messages)
    row(page, "Requests in flight", "second-request").get_by_text("running").wait_for()
    row(page, "Last requests that ended", "first-request").get_by_text("cancelled_by_operator").wait_for()
    second.hang_up()
    row(page, "Last requests that ended", "second-request").wait_for()
    row(page, "Requests in flight", "second-request").wait_for(state="detached")


def test_a_click_on_a_request_shows_its_log_lines(server: LemonbusServer, open_page: OpenPage) -> None:
    page = open_page(server)
    for request_id in ("wanted-request", "other-request"):
        assert server.client.start_chat(CHAT, {"X-Request-ID": request_id}, max_tokens=1).finish().status == 200
    row(page, "Last requests that ended", "wanted-request").get_by_role("button").click()
    lines = page.tab.locator(".log-line")
    lines.first.wait_for()
    assert page.tab.get_by_label("Request", exact=True).input_value() == "wanted-request"
    assert [text for text in lines.all_text_contents() if "wanted-request" not in text] == []
    assert page.by_role("log").evaluate("(lines) => lines === document.activeElement"), "the keyboard goes on there"


def test_a_model_is_loaded_pinned_and_unloaded(server: LemonbusServer, open_page: OpenPage) -> None:
    page = open_page(server)
    assert server.client.post("/v1/load", {"model_name": TALE}).status == 200
    card(page, TALE).get_by_text("Ready").wait_for()
    page.by_role("button", f"Pin {TALE}").click()
    card(page, TALE).get_by_text("pinned", exact=True).wait_for()
    page.by_role("button", f"Unpin {TALE}").click()
    card(page, TALE).get_by_text("pinned", exact=True).wait_for(state="hidden")
    page.by_role("button", f"Unload {TALE}").click()
    card(page, TALE).get_by_text("Ready").wait_for(state="detached")
    assert server.model_state(TALE) == ""


def test_an_engine_that_was_killed_is_named_with_its_reason(server: LemonbusServer, open_page: OpenPage) -> None:
    page = open_page(server)
    assert server.client.post("/v1/load", {"model_name": CHAT}).status == 200
    card(page, CHAT).get_by_text("Ready").wait_for()
    processes.kill(server.engine_pid(CHAT))
    card(page, CHAT).get_by_text("SIGKILL").first.wait_for()
    died = page.by_role("main").locator("section").filter(has=page.by_role("heading", "Died in the last 24 hours")).last
    died.get_by_text("SIGKILL").wait_for()
    page.by_role("button", f"Load {CHAT}").click()
    card(page, CHAT).get_by_text("Ready").wait_for()


def test_a_model_that_cannot_be_loaded_says_why(start_server: StartServer, open_page: OpenPage) -> None:
    server = start_server("tiny-chat")
    (server.models / "broken.gguf").write_bytes(b"GGUF" + bytes(100))
    page = open_page(server)
    answer = server.client.post("/v1/load", {"model_name": "extra.broken"})
    assert answer.status >= 400
    card(page, "extra.broken").get_by_text("Failed").wait_for()
    shown = card(page, "extra.broken").inner_text()
    assert answer.json()["error"]["message"] in shown


def test_the_page_outlives_a_supervisor(server: LemonbusServer, open_page: OpenPage) -> None:
    page = open_page(server)
    page.wait("document.querySelector('.connection').dataset.state === 'live'", "it is connected")
    kill_supervisor(server)
    running = stream(server, "after-the-death").until(lambda exchange: exchange.messages)
    row(page, "Requests in flight", "after-the-death").get_by_text("running").wait_for()
    running.hang_up()
    row(page, "Requests in flight", "after-the-death").wait_for(state="detached")


def test_the_page_finds_the_server_after_a_restart(start_server: StartServer, open_page: OpenPage) -> None:
    server = start_server("tiny-chat", load=[CHAT])
    page = open_page(server)
    page.may_fail = ["net::ERR_", "Failed to load resource"]
    card(page, CHAT).get_by_text("Ready").wait_for()
    server.stop()
    page.wait("document.querySelector('.connection').dataset.state === 'lost'", "the page says that it is lost")
    again = start_server("tiny-tale", load=[TALE], port=server.port)
    assert again.port == server.port
    card(page, TALE).get_by_text("Ready").wait_for()
    assert card(page, CHAT).count() == 0
