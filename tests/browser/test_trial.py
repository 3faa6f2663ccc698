"""Models tried in a real browser, against real servers: a chat, and a form for each other type of model."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from protocol.runtime.deferred_module import DeferredModule
from tests.browser.conftest import OpenPage
from tests.conftest import KEY, StartServer
from tests.fake_engines.llama_server import program
from tests.support import processes
from tests.support.audio import wav
from tests.support.browser import BrowserPage
from tests.support.images import TURBO, downloaded, png, safetensors
from tests.support.models.tiny_models import CHAT_TEXT
from tests.support.server import LemonbusServer

if TYPE_CHECKING:
    from playwright import sync_api
else:
    sync_api = DeferredModule("playwright.sync_api")

TEXT = CHAT_TEXT.strip()
HTML = "<img src=x onerror=alert(1)>"
REFUSED = [r"^Failed to load resource: .* 4\d\d "]
"""What Chromium says when the server refuses something."""
WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}
Try = Callable[..., BrowserPage]


@pytest.fixture
def try_model(open_page: OpenPage, shared_server: LemonbusServer) -> Try:
    """Opens the page at a model, of the shared server unless another one is given."""

    def opened(model: str, server: LemonbusServer | None = None, **options: object) -> BrowserPage:
        page = open_page(server or shared_server, f"#/try?model={model}", **options)
        page.may_fail = REFUSED
        return page

    return opened


@pytest.fixture(scope="module")
def artists(start_module_server: StartServer, tmp_path_factory: pytest.TempPathFactory) -> LemonbusServer:
    """A server with a model that draws and one that speaks."""
    folder = tmp_path_factory.mktemp("artists")
    downloaded(folder, *TURBO, safetensors())
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HF_HOME", str(folder))
        return start_module_server("tiny-kokoro", sdcpp_backend="system", sd_server=program(folder, "sd_server"))


def message(page: BrowserPage) -> sync_api.Locator:
    return page.by_role("textbox", "Message")


def send(page: BrowserPage, text: str) -> sync_api.Locator:
    """Send a message, and return its answer, once it is complete."""
    answers = page.by_role("article", "Answer")
    message(page).wait_for()
    number = answers.count()
    message(page).fill(text)
    message(page).press("Enter")
    answer = answers.nth(number)
    answer.get_by_text("prompt tokens").wait_for()
    sync_api.expect(page.by_role("button", "Send")).to_be_enabled()  # the counts come just before the end
    return answer


def curl(page: BrowserPage) -> str:
    """Return the curl line that the page shows."""
    line = page.tab.get_by_label("curl line")
    if not line.is_visible():
        page.tab.get_by_text("The same with curl").click()
    line.wait_for()
    return line.inner_text()


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


def test_vectors(try_model: Try) -> None:
    page = try_model("extra.tiny-embed")
    page.tab.get_by_label("Text", exact=True).fill("hello")
    page.tab.get_by_label("Another text").fill("hello")
    page.by_role("button", "Embed").click()
    facts = page.by_role("region", "Embeddings").locator("dl")
    sync_api.expect(facts).to_contain_text("Cosine1.0000")
    sync_api.expect(facts).to_contain_text("Dimensions32")


def test_scores(try_model: Try) -> None:
    page = try_model("extra.tiny-rerank")
    page.by_role("button", "Rank").click()
    page.tab.locator(".problem").get_by_text("Write a query and some documents.").wait_for()
    page.tab.get_by_label("Query").fill("hello")
    page.tab.get_by_label("Documents").fill("one\n\ntwo")
    page.by_role("button", "Rank").click()
    rows = page.by_role("region", "Reranking").locator("tbody tr")
    sync_api.expect(rows).to_have_count(2)
    scores = [float(score) for score in rows.locator("td.number").all_text_contents()]
    assert scores == sorted(scores, reverse=True)


def test_the_text_of_a_recording(try_model: Try, tmp_path: Path) -> None:
    page = try_model("extra.tiny-whisper")
    (tmp_path / "a.wav").write_bytes(wav(1.0))
    page.tab.get_by_label("Sound file").set_input_files(tmp_path / "a.wav")
    page.by_role("button", "Transcribe").click()
    sync_api.expect(page.tab.locator(".transcript")).to_have_text(TEXT)
    assert "-F file=@a.wav" in curl(page)


MICROPHONE = """() => {
  navigator.mediaDevices.getUserMedia = async () => {
    if (window.refused) throw new DOMException("", "NotAllowedError");
    const sound = new AudioContext();
    const target = sound.createMediaStreamDestination();
    const tone = sound.createOscillator();
    tone.connect(target);
    tone.start();
    return (window.stream = target.stream);
  };
}"""
"""A microphone that hears a tone."""


def test_what_the_microphone_hears(try_model: Try) -> None:
    page = try_model("extra.tiny-whisper")
    form = page.by_role("region", "Transcription")
    form.wait_for()
    page.tab.evaluate(MICROPHONE)
    page.tab.evaluate("window.refused = true")
    form.get_by_role("button", name="Record", exact=True).click()
    form.get_by_text("The browser refused the microphone").wait_for()
    page.tab.evaluate("window.refused = false")
    form.get_by_role("button", name="Record", exact=True).click()
    form.get_by_text(re.compile(r"^Recording: [1-9]")).wait_for()
    form.get_by_role("button", name="Stop recording").click()
    form.get_by_text("Recorded: recording.webm").wait_for()
    assert page.tab.evaluate("stream.getTracks().every((track) => track.readyState === 'ended')")
    form.get_by_role("button", name="Transcribe").click()
    sync_api.expect(page.tab.locator(".transcript")).to_have_text(TEXT)


def test_a_recording_ends_with_the_view(try_model: Try) -> None:
    page = try_model("extra.tiny-whisper")
    form = page.by_role("region", "Transcription")
    form.wait_for()
    page.tab.evaluate(MICROPHONE)
    form.get_by_role("button", name="Record", exact=True).click()
    form.get_by_text(re.compile(r"^Recording: ")).wait_for()
    page.go("#/usage")
    page.wait("stream.getTracks().every((track) => track.readyState === 'ended')", "nothing listens any more")


def test_a_picture_is_drawn(artists: LemonbusServer, try_model: Try, tmp_path: Path) -> None:
    page = try_model("SD-Turbo", artists)
    page.tab.get_by_label("Prompt").fill("a cat")
    page.tab.get_by_label("Seed").fill("-3")
    page.by_role("button", "Draw").click()
    page.tab.locator(".problem").get_by_text("Seed: ").wait_for()
    page.tab.get_by_label("Seed").fill("7")
    page.tab.get_by_label("Size").select_option("256x256")
    page.by_role("button", "Draw").click()
    page.by_role("img", "a cat").wait_for()
    page.wait("document.querySelector('.pictures img').naturalWidth === 256", "the picture is shown")
    sync_api.expect(page.by_role("list", "Pictures")).to_contain_text("256x256, Seed 7")
    with page.tab.expect_download() as download:
        page.by_role("link", "Download picture-7.png").click()
    assert download.value.path().read_bytes().startswith(b"\x89PNG")
    (tmp_path / "cat.png").write_bytes(png(64, 64))
    page.tab.get_by_label("Start from a picture").set_input_files(tmp_path / "cat.png")
    page.tab.get_by_label("Prompt").fill("a dog")
    assert "-F image=@cat.png" in curl(page)
    page.by_role("button", "Draw").click()
    page.by_role("img", "a dog").wait_for()


def test_a_text_is_read_aloud(artists: LemonbusServer, try_model: Try) -> None:
    page = try_model("extra.tiny-kokoro", artists)
    page.tab.get_by_label("Text", exact=True).fill("hello world")
    page.tab.get_by_label("Voice").select_option("am_onyx")
    page.by_role("button", "Speak").click()
    page.by_role("link", "Download speech.wav").wait_for()
    page.wait("document.querySelector('audio').duration > 0.3", "the sound can be played")
    assert '"voice":"am_onyx"' in curl(page)
    with page.tab.expect_download() as download:
        page.by_role("link", "Download speech.wav").click()
    assert download.value.path().read_bytes().startswith(b"RIFF")


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
