"""Models tried in a real browser, against real servers: chats, also with pictures and tools."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from protocol.runtime.deferred_module import DeferredModule
from tests.browser.trial import REFUSED, TEXT, Try, curl, message, send
from tests.conftest import KEY, StartServer
from tests.support import processes
from tests.support.browser import BrowserPage
from tests.support.images import png
from tests.support.server import LemonbusServer

if TYPE_CHECKING:
    from playwright import sync_api
else:
    sync_api = DeferredModule("playwright.sync_api")

HTML = "<img src=x onerror=alert(1)>"
WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}


def test_a_chat(try_model: Try) -> None:
    page = try_model("extra.tiny-chat")
    message(page).wait_for()
    page.tab.evaluate(
        """() => { window.spoken = [];
        new MutationObserver(() => spoken.push(announcer.textContent)).observe(announcer, { childList: true, characterData: true, subtree: true }); }"""
    )
    message(page).type("Hello")
    message(page).press("Shift+Enter")
    message(page).type(HTML)
    message(page).press("Enter")
    answer = page.by_role("article", "Answer")
    answer.get_by_text("prompt tokens").wait_for()
    sync_api.expect(answer.locator(".answer-text")).to_have_text(TEXT)
    sync_api.expect(answer).to_contain_text(
        re.compile(r"first token .* · .* tokens/s · 2\d tokens · \d+ prompt tokens")
    )
    question = page.by_role("article", "Question")
    assert f"Hello\n{HTML}" in question.inner_text()
    assert question.locator("img").count() == 0, "a text is never HTML"
    page.wait("spoken.length > 0", "the answer is announced")
    assert page.tab.evaluate("spoken") == [TEXT], "once, and not token by token"
    assert message(page).input_value() == ""
    sync_api.expect(message(page)).to_be_focused()
    sent = json.loads(re.search(r"-d '(.*)'$", curl(page), re.DOTALL)[1])  # type: ignore[index]
    assert sent["messages"] == [{"role": "user", "content": f"Hello\n{HTML}"}]


def test_a_conversation_goes_on_with_another_model_and_after_another_view(try_model: Try) -> None:
    page = try_model("extra.tiny-chat")
    send(page, "One")
    page.tab.get_by_label("Model", exact=True).select_option("extra.tiny-think")
    answer = send(page, "Two")
    sync_api.expect(answer.locator(".answer-text")).to_have_text("Forty two.")
    reasoning = answer.get_by_text("The user asks")
    assert not reasoning.is_visible(), "it is folded"
    answer.get_by_text("Reasoning").click()
    reasoning.wait_for()
    page.go("#/")
    page.by_role("heading", "Try a model").wait_for(state="detached")
    page.go("#/try")
    sync_api.expect(page.by_role("article", "Question")).to_have_count(2)
    sync_api.expect(page.tab.get_by_label("Model", exact=True)).to_have_value("extra.tiny-think")
    page.by_role("button", "Clear").click()
    sync_api.expect(page.by_role("article", "Question")).to_have_count(0)


def test_options_reach_the_model(try_model: Try) -> None:
    page = try_model("extra.tiny-tool")
    page.tab.get_by_text("Options").click()
    page.tab.get_by_label("Tools").fill("[")
    message(page).fill("Weather?")
    message(page).press("Enter")
    page.tab.locator(".problem").get_by_text("Tools: ").wait_for()
    assert message(page).input_value() == "Weather?", "what is refused is not lost"
    page.tab.get_by_label("Tools").fill(json.dumps([WEATHER]))
    answer = send(page, "Weather?")
    sync_api.expect(answer.get_by_role("list", name="Tool calls")).to_contain_text('"city": "Paris"')
    page.by_role("button", "Clear").click()
    page.tab.get_by_label("Model", exact=True).select_option("extra.tiny-loop")
    page.tab.get_by_label("Tools").fill("")
    page.tab.get_by_label("Max tokens").fill("5")
    sync_api.expect(send(page, "Go on")).to_contain_text("Stopped at the limit of tokens.")


def test_stop_ends_the_request(start_server: StartServer, try_model: Try) -> None:
    server = start_server("tiny-loop")
    assert server.client.post("/v1/load", {"model_name": "extra.tiny-loop"}).status == 200
    page = try_model("extra.tiny-loop", server)
    page.may_fail = [*REFUSED, "net::ERR_ABORTED"]
    with processes.stopped(server.engine_pid("extra.tiny-loop")):
        message(page).fill("Go on")
        message(page).press("Enter")
        answer = page.by_role("article", "Answer")
        answer.get_by_text(re.compile(r"(Waiting|The model has worked).* for \d")).wait_for()
        page.by_role("button", "Stop").click()
        answer.get_by_text("Stopped.").wait_for()
        sync_api.expect(message(page)).to_be_focused()
    server.assert_idle()
    answer.get_by_role("button", name="Try again").click()
    sync_api.expect(page.by_role("article", "Answer")).to_have_count(1)
    page.by_role("article", "Answer").get_by_text("Once a very small").wait_for()


def test_an_error_inside_a_stream(try_model: Try) -> None:
    page = try_model("extra.tiny-chat")
    events = [{"choices": [{"index": 0, "delta": {"content": HTML}}]}, {"error": {"message": "the engine has died"}}]
    body = "".join(f"data: {json.dumps(event)}\n\n" for event in events)
    page.tab.route("**/v1/chat/completions", lambda route: route.fulfill(body=body, content_type="text/event-stream"))
    message(page).fill("Hello")
    message(page).press("Enter")
    answer = page.by_role("article", "Answer")
    answer.get_by_text("the engine has died").wait_for()
    sync_api.expect(answer.locator(".answer-text")).to_have_text(HTML)
    assert answer.locator("img").count() == 0, "a text is never HTML"
    page.tab.unroute("**/v1/chat/completions")
    answer.get_by_role("button", name="Try again").click()
    sync_api.expect(page.by_role("article", "Answer").locator(".answer-text")).to_have_text(TEXT)


def test_pictures_in_a_chat(try_model: Try, tmp_path: Path) -> None:
    page = try_model("extra.tiny-vision")
    (tmp_path / "my cat.png").write_bytes(png(90, 60))
    message(page).wait_for()
    page.tab.locator("input[type=file]").set_input_files(tmp_path / "my cat.png")
    page.by_role("img", "my cat.png").wait_for()
    page.by_role("button", "Remove my cat.png").click()
    sync_api.expect(page.by_role("img", "my cat.png")).to_have_count(0)
    drop(page, png(64, 64))
    page.by_role("img", "dropped.png").wait_for()
    page.tab.locator("input[type=file]").set_input_files(tmp_path / "my cat.png")
    page.by_role("img", "my cat.png").wait_for()
    line = curl(page)
    assert "base64 < 'my cat.png'" in line
    assert len(line) < 2_000
    sync_api.expect(send(page, "What is it?").locator(".answer-text")).to_have_text(TEXT)
    sync_api.expect(page.by_role("article", "Question").locator("img")).to_have_count(2)
    page.tab.get_by_label("Model", exact=True).select_option("extra.tiny-chat")
    sync_api.expect(page.by_role("button", "Add pictures")).to_be_hidden()
    drop(page, png(64, 64))
    page.tab.get_by_text("This model takes no pictures.").first.wait_for()
    sync_api.expect(send(page, "And now?").locator(".answer-text")).to_have_text(TEXT)


def drop(page: BrowserPage, picture: bytes) -> None:
    """Drop a picture on the chat."""
    page.by_role("region", "Chat").evaluate(
        """(target, bytes) => {
          const dataTransfer = new DataTransfer();
          dataTransfer.items.add(new File([Uint8Array.from(bytes)], "dropped.png", { type: "image/png" }));
          for (const type of ["dragover", "drop"]) target.dispatchEvent(new DragEvent(type, { dataTransfer, bubbles: true, cancelable: true }));
        }""",
        list(picture),
    )


def test_the_curl_line_of_a_picture_is_the_request(try_model: Try, tmp_path: Path) -> None:
    page = try_model("extra.tiny-vision")
    (tmp_path / "cat.png").write_bytes(png(90, 60))
    message(page).wait_for()
    page.tab.locator("input[type=file]").set_input_files(tmp_path / "cat.png")
    page.by_role("img", "cat.png").wait_for()
    message(page).fill("It's what?")
    done = subprocess.run(
        ["sh"], input=curl(page), cwd=tmp_path, capture_output=True, text=True, timeout=30, check=False
    )
    assert done.stdout.rstrip().endswith("data: [DONE]"), done


def test_a_server_with_keys(keyed_server: LemonbusServer, try_model: Try) -> None:
    page = try_model("extra.tiny-chat", keyed_server, key=KEY)
    send(page, "Hello")
    line = curl(page)
    assert '-H "Authorization: Bearer $LEMONBUS_API_KEY"' in line
    assert KEY not in line


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [400, 1600])
def test_the_forms_fit_and_are_accessible(try_model: Try, width: int, dark: bool) -> None:
    page = try_model("extra.tiny-think", width=width, dark=dark)
    send(page, "long-word-" * 40)
    page.tab.get_by_text("Options").click()
    curl(page)
    for model in ("extra.tiny-think", "extra.tiny-embed", "extra.tiny-rerank", "extra.tiny-whisper"):
        page.tab.get_by_label("Model", exact=True).select_option(model)
        assert page.tab.evaluate("document.documentElement.scrollWidth") <= width, model
        assert page.audit() == [], model


def test_what_is_cleared_is_not_kept(try_model: Try) -> None:
    page = try_model("extra.tiny-chat")

    def chat_and_clear() -> int:
        for number in range(5):
            send(page, f"Message {number}")
        page.by_role("button", "Clear").click()
        sync_api.expect(page.by_role("article", "Question")).to_have_count(0)
        return page.counters()[0]

    before = chat_and_clear()
    after = [chat_and_clear() for _ in range(4)]
    assert min(after) <= before + 200, "an exchange has more than twenty nodes"
