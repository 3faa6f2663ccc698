"""The page where a model is tried: opening it, and what tests do there."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from protocol.runtime.deferred_module import DeferredModule
from tests.support.browser import BrowserPage
from tests.support.models.tiny_models import CHAT_TEXT

if TYPE_CHECKING:
    from playwright import sync_api
else:
    sync_api = DeferredModule("playwright.sync_api")

TEXT = CHAT_TEXT.strip()
"""What most of the models answer."""
REFUSED = [r"^Failed to load resource: .* 4\d\d "]
"""What Chromium says when the server refuses something."""

Try = Callable[..., BrowserPage]


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
