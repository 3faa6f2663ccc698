"""Models tried in a real browser, against real servers: the forms of models that do not chat."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from protocol.runtime.deferred_module import DeferredModule
from tests.browser.trial import TEXT, Try, curl
from tests.conftest import StartServer
from tests.fake_engines.llama_server import program
from tests.support.audio import wav
from tests.support.images import TURBO, downloaded, png, safetensors
from tests.support.server import LemonbusServer

if TYPE_CHECKING:
    from playwright import sync_api
else:
    sync_api = DeferredModule("playwright.sync_api")


@pytest.fixture(scope="module")
def artists(start_module_server: StartServer, tmp_path_factory: pytest.TempPathFactory) -> LemonbusServer:
    """A server with a model that draws and one that speaks."""
    folder = tmp_path_factory.mktemp("artists")
    downloaded(folder, *TURBO, safetensors())
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HF_HOME", str(folder))
        return start_module_server("tiny-kokoro", sdcpp_backend="system", sd_server=program(folder, "sd_server"))


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
