"""Keys in the page: it asks for one, shows what the key may see, and offers only what the key may do."""

from __future__ import annotations

import json

from tests.browser.conftest import OpenPage
from tests.conftest import ADMIN_KEY, KEY
from tests.support import processes
from tests.support.browser import BrowserPage, RunningBrowser
from tests.support.fakes.image_server import ImageServer
from tests.support.server import LemonbusServer

REFUSED = [r"401 \(Unauthorized\)"]
CHANGES = ("Load", "Unload", "Pin", "Cancel")

CHAT, LOOP = "extra.tiny-chat", "extra.tiny-loop"
FETCH = """async ([url, method]) => {
  try { return await (await fetch(url, { method, body: method === "POST" ? "{}" : undefined })).text(); }
  catch (problem) { return String(problem); }
}"""
CONNECT = """(url) => new Promise((done) => {
  const socket = new WebSocket(url, ["lemonbus"]);
  socket.onopen = () => done("open");
  socket.onerror = () => done("refused");
})"""


def give_key(page: BrowserPage, key: str) -> None:
    """Type a key into the dialog."""
    dialog = page.by_role("dialog", "API key")
    dialog.get_by_label("API key").fill(key)
    dialog.get_by_label("API key").press("Enter")


def test_a_key_is_asked_for_and_kept_for_the_tab(keyed_server: LemonbusServer, open_page: OpenPage) -> None:
    page = open_page(keyed_server)
    page.may_fail = REFUSED
    give_key(page, "wrong")
    page.by_role("dialog", "API key").get_by_role("alert").wait_for()
    give_key(page, ADMIN_KEY)
    page.by_role("dialog", "API key").wait_for(state="detached")
    page.by_role("heading", "Models").wait_for()
    page.tab.reload()
    page.by_role("heading", "Models").wait_for()
    assert page.by_role("dialog").count() == 0
    assert ADMIN_KEY not in page.tab.url + page.tab.content()


def test_escape_closes_the_dialog_and_the_focus_returns(keyed_server: LemonbusServer, open_page: OpenPage) -> None:
    page = open_page(keyed_server, key=ADMIN_KEY)
    page.by_role("heading", "Models").wait_for()
    button = page.by_role("banner").get_by_role("button", name="Key")
    button.focus()
    page.tab.keyboard.press("Enter")
    page.by_role("dialog", "API key").wait_for()
    assert page.tab.evaluate("document.activeElement.tagName") == "INPUT"
    page.tab.keyboard.press("Escape")
    page.by_role("dialog", "API key").wait_for(state="detached")
    page.wait("document.activeElement?.closest('header') !== null", "the focus is where it was")


def test_without_an_administrators_key_the_page_is_read_only(keyed_server: LemonbusServer, open_page: OpenPage) -> None:
    """It shows the key's own requests, and offers neither to cancel them nor to change a model."""
    headers = {"Authorization": f"Bearer {KEY}", "X-Request-ID": "own-request"}
    running = keyed_server.client.start_chat(LOOP, headers, max_tokens=7000, stream=True)
    running.until(lambda exchange: exchange.messages)
    with processes.stopped(keyed_server.engine_pid(LOOP)):  # the request runs until it has been seen
        page = open_page(keyed_server, key=ADMIN_KEY)
        page.by_role("button", "Cancel own-request").wait_for()
        assert page.by_role("button", f"Unload {LOOP}").is_visible()
        page = open_page(keyed_server, key=KEY)
        page.by_role("row").filter(has_text="own-request").wait_for()
        page.by_role("heading", LOOP).wait_for()
        page.by_role("main").get_by_text("Read-only").wait_for()
        buttons = page.by_role("button").all_inner_texts()
    running.hang_up()
    assert [text for text in buttons if text in CHANGES] == []


def test_a_page_of_another_host_sees_little_and_changes_nothing(
    shared_server: LemonbusServer, browser: RunningBrowser
) -> None:
    server = f"127.0.0.1:{shared_server.port}"
    assert shared_server.client.chat(CHAT, max_tokens=1).status == 200
    with ImageServer() as elsewhere, browser.page(elsewhere.url("", host="elsewhere.test")) as page:
        page.go("/page")
        seen = page.tab.evaluate(FETCH, [f"http://{server}/internal/overview", "GET"])
        changed = page.tab.evaluate(FETCH, [f"http://{server}/v1/unload", "POST"])
        cancelled = page.tab.evaluate(FETCH, [f"http://{server}/internal/requests/g1:1", "DELETE"])
        log = page.tab.evaluate(CONNECT, f"ws://{server}/logs/stream")
        page.may_fail = ["blocked by CORS policy", "Failed to load resource", "WebSocket connection to .* 403"]
        page.foreign.clear()
    overview = json.loads(seen)
    assert (overview["access"]["admin"], overview["requests"], overview["ended"]) == (False, {}, {})
    assert {"command", "engine_pid", "worker_pid"} & set(overview["models"][CHAT]) == set()
    assert "may not" in changed
    assert "may not" in cancelled
    assert log == "refused"
    assert shared_server.model_state(CHAT) == "ready"
