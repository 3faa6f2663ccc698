"""Models managed in a real browser, against real servers: loads with options, new models, downloads, deletions."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from protocol.runtime.deferred_module import DeferredModule
from tests.browser.conftest import OpenPage, StartStandIn
from tests.browser.overviews import overview, ready
from tests.conftest import KEY, StartServer
from tests.server.models.pulls import HELD, REPOSITORY, OwnHub, hub_with_settings
from tests.support.browser import BrowserPage
from tests.support.server import LemonbusServer

if TYPE_CHECKING:
    from playwright import sync_api
else:
    sync_api = DeferredModule("playwright.sync_api")

LIST = "#/models"
CHAT = "extra.tiny-chat"
NEW = "user.tiny-GGUF"
MANY = 500


@pytest.fixture
def own_hub(tmp_path: Path) -> Iterator[OwnHub]:
    with hub_with_settings(tmp_path) as found:
        yield found


def row_of(page: BrowserPage, name: str) -> sync_api.Locator:
    """Return the row of a model in the list."""
    return page.by_role("row").filter(has=page.by_role("link", name, exact=True))


def test_a_model_is_loaded_with_another_context(start_server: StartServer, open_page: OpenPage) -> None:
    server = start_server("tiny-chat")
    page = open_page(server, LIST)
    page.by_role("button", f"Options … {CHAT}", exact=True).click()
    dialog = page.by_role("dialog", f"Load {CHAT}")
    context = dialog.get_by_label("Context size (tokens)")
    context.fill("many")
    dialog.get_by_text("ctx_size must be a whole number, or auto.").wait_for()
    context.fill("1024")
    dialog.get_by_text("Context: 1,024 tokens in each of").wait_for()
    assert "dry_run" not in (dialog.get_by_label("curl line").text_content() or "")
    dialog.get_by_text("The same with curl").click()
    sync_api.expect(dialog.get_by_label("curl line")).to_contain_text('"ctx_size":1024')
    dialog.get_by_role("button", name="Load", exact=True).click()
    dialog.wait_for(state="detached")
    row_of(page, CHAT).get_by_text("Ready", exact=True).wait_for()
    assert server.client.get(f"/v1/models/{CHAT}").json()["context_length"] == 1024
    row_of(page, CHAT).get_by_role("link").click()
    option = page.by_role("row").filter(has_text="ctx_size")
    sync_api.expect(option).to_contain_text("1024")
    page.by_role("button", f"Unload {CHAT}", exact=True).click()
    page.by_role("region", CHAT).get_by_text("Not loaded", exact=True).wait_for()
    assert not page.audit()


def test_a_new_model_is_added_paused_resumed_and_deleted(
    own_hub: OwnHub, start_server: StartServer, open_page: OpenPage
) -> None:
    hub, settings = own_hub
    hub.hold_after = HELD
    Path(settings["state_dir"], "user_models.json").unlink()  # no other model uses the files
    server = start_server("tiny-chat", **settings)
    page = open_page(server, LIST)
    page.by_role("button", "Add a model …").click()
    form = page.by_role("dialog", "Add a model")
    form.get_by_label("Repository").fill(f"https://huggingface.co/{REPOSITORY}/tree/main")
    form.get_by_role("button", name="List variants").click()
    sync_api.expect(form.get_by_label("Variant", exact=True)).to_have_value("Q4_0")
    sync_api.expect(form.get_by_label("Projector (mmproj)")).to_have_value("mmproj-F16.gguf")
    form.get_by_role("button", name="Download").click()
    form.wait_for(state="detached")
    downloads = page.by_role("region", "Downloads")
    downloads.get_by_role("button", name=f"Pause {NEW}").click()
    downloads.get_by_text(re.compile("^paused: ")).wait_for()
    row_of(page, NEW).get_by_text("Download paused").wait_for()
    (job,) = server.client.get("/v1/downloads").json()
    assert (job["model_name"], job["status"]) == (NEW, "paused")
    hub.hold_after = 0
    hub.released.set()
    downloads.get_by_role("button", name=f"Resume {NEW}").click()
    row_of(page, NEW).get_by_text("Not loaded", exact=True).wait_for()
    row_of(page, NEW).get_by_role("link").click()
    page.by_role("button", f"Delete … {NEW}", exact=True).click()
    confirm = page.by_role("dialog", f"Delete {NEW}?")
    sync_api.expect(confirm.get_by_role("listitem")).to_have_count(2)
    sync_api.expect(confirm).to_contain_text("tiny-Q4_0.gguf")
    assert server.client.get(f"/v1/models/{NEW}").json()["downloaded"] is True
    confirm.get_by_role("button", name="Delete", exact=True).click()
    page.by_role("main").get_by_text(f"There is no model {NEW}.").wait_for()
    assert server.client.get(f"/v1/models/{NEW}").status == 404


def test_a_key_that_is_not_an_administrators_changes_nothing(keyed_server: LemonbusServer, open_page: OpenPage) -> None:
    page = open_page(keyed_server, LIST, key=KEY)
    row_of(page, CHAT).wait_for()
    page.by_role("main").get_by_text("Read-only").wait_for()
    assert [name for name in page.by_role("main").get_by_role("button").all_text_contents() if name] == []
    row_of(page, CHAT).get_by_role("link").click()
    page.by_role("main").get_by_text("Only administrators see its files and options.").wait_for()
    assert page.by_role("main").get_by_role("button").count() == 0


def test_500_models_are_searched(start_stand_in: StartStandIn, open_page: OpenPage) -> None:
    names = [f"user.model-{number}" for number in range(MANY)]
    server = start_stand_in(overview({names[7]: ready()}))
    models = [
        {
            "id": name,
            "labels": [],
            "model_type": "llm",
            "recipe": "llamacpp",
            "downloaded": number % 2 == 1,
            "size": 1.5,
        }
        for number, name in enumerate(names)
    ]
    server.answers["/v1/models"] = {"data": models}
    page = open_page(server, LIST)
    page.by_role("main").get_by_text(f"{MANY} models of {MANY}").wait_for()
    search = page.by_role("main").get_by_label("Search")
    search.fill("model-7")
    page.by_role("main").get_by_text(f"11 models of {MANY}").wait_for()
    sync_api.expect(page.by_role("main").get_by_role("row").nth(1)).to_contain_text("Ready")
    page.by_role("main").get_by_label("Show").select_option("Not downloaded")
    page.by_role("main").get_by_text(f"5 models of {MANY}").wait_for()
    search.fill("")
    page.by_role("main").get_by_text(f"{MANY // 2} models of {MANY}").wait_for()
    server.send("patch", {"models": {names[8]: ready()}})
    page.by_role("main").get_by_label("Show").select_option("Loaded")
    page.by_role("main").get_by_text(f"2 models of {MANY}").wait_for()


def test_the_actions_are_in_sight(shared_server: LemonbusServer, open_page: OpenPage) -> None:
    """The catalogue has models with long names and with aliases."""
    page = open_page(shared_server, LIST, width=1000)
    page.by_role("button", f"Options … {CHAT}", exact=True).wait_for()
    assert page.tab.evaluate(
        "[...document.querySelectorAll('.table-wrap')].every((each) => each.scrollWidth <= each.clientWidth)"
    )


def test_a_dialog_is_closed_when_another_view_is_shown(start_stand_in: StartStandIn, open_page: OpenPage) -> None:
    server = start_stand_in(overview({}))
    server.answers |= {"/v1/models": {"data": []}, "/v1/system-info": {"recipes": {"llamacpp": {"backends": {}}}}}
    page = open_page(server)
    page.go(LIST)
    page.by_role("button", "Add a model …").click()
    dialog = page.by_role("dialog", "Add a model")
    dialog.wait_for()
    page.tab.go_back()
    dialog.wait_for(state="detached")
    page.by_role("heading", "Who waits").wait_for()
