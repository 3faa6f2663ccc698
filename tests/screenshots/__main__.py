"""Takes the pictures: ``python -m tests.screenshots --minutes 2``. The plots show these minutes."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple

from tests.screenshots.pictures import keep
from tests.screenshots.scene import ADMIN_KEY, BUSY, Scene, running_scene
from tests.support.browser import CHROMIUM, BrowserPage, RunningBrowser, browser_driver, running_browser
from tests.support.waiting import pause

FOLDER: Final = Path(__file__).parents[2] / "docs" / "screenshots"
SIZES: Final = {400: 860, 1000: 800, 1600: 1000}
"""Width → height of the window."""
WHOLE_AT: Final = 1000
"""The width at which a picture has the whole page, and not only what a window shows of it."""
QUESTION: Final = "Explain in two sentences what a queue is good for."
NO_SCROLLBAR: Final = "document.documentElement.style.scrollbarGutter = 'auto'"
"""Chromium without a screen draws no scrollbar, so there is no need for its place."""


def main() -> int:
    """Take them; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.screenshots", description="Pictures of the page.")
    parser.add_argument("--minutes", type=float, default=2.0)
    asked = parser.parse_args()
    if not CHROMIUM:
        print("chromium is not installed (make browser): there are no new screenshots")
        return 0
    with running_scene() as scene, browser_driver() as driver, running_browser(driver) as browser:
        scene.prepare()
        with scene.traffic():
            pause(asked.minutes * 60)
            for width, height in SIZES.items():
                for dark in (False, True):
                    _take_all(scene, browser, width, height, dark=dark)
    print(f"{sum(file.stat().st_size for file in FOLDER.glob('*.png')) / 1e3:.0f} kB in {FOLDER}")
    return 0


def _take_all(scene: Scene, browser: RunningBrowser, width: int, height: int, *, dark: bool) -> None:
    origin = f"http://127.0.0.1:{scene.server.port}"
    with browser.page(origin, width=width, height=height, dark=dark, key=ADMIN_KEY) as page:
        for name, view in VIEWS.items():
            page.go(view.address)
            view.wait(page, scene)
            page.tab.evaluate(NO_SCROLLBAR)
            file = FOLDER / f"{name}-{width}-{'dark' if dark else 'light'}.png"
            written = keep(file, page.tab.screenshot(full_page=view.whole and width == WHOLE_AT))
            page.tab.keyboard.press("Escape")  # closes the dialog, if it is one
            print(f"{'wrote' if written else 'kept '} {file.name}", flush=True)


def _overview(page: BrowserPage, _scene: Scene) -> None:
    page.by_role("main").get_by_text("for a slot").first.wait_for()
    page.by_role("row").filter(has_text=BUSY).first.wait_for()
    page.wait("document.querySelectorAll('.plot path[d]').length >= 4", "there are lines in the plots")


def _models(page: BrowserPage, scene: Scene) -> None:
    page.by_role("row").filter(has_text=scene.chats_with).first.wait_for()


def _load(page: BrowserPage, scene: Scene) -> None:
    """The dialog of a load with another context, which says what it would do."""
    page.by_role("heading", scene.chats_with).wait_for()
    page.by_role("button", f"Options … {scene.chats_with}", exact=True).click()
    dialog = page.by_role("dialog")
    dialog.get_by_label(re.compile("Context size")).fill("4096")
    dialog.get_by_role("status", name="What this load would do").get_by_text("Context: 4,096").wait_for()


def _try(page: BrowserPage, scene: Scene) -> None:
    page.tab.get_by_label("Model", exact=True).select_option(scene.chats_with)
    page.tab.get_by_text("Options", exact=True).click()
    page.tab.get_by_label("Temperature").fill("0")
    page.tab.get_by_label("Max tokens").fill("90")
    page.tab.get_by_text("Options", exact=True).click()
    page.tab.get_by_label("Message").fill(QUESTION)
    page.tab.get_by_label("Message").press("Enter")
    page.by_role("article", "Answer").get_by_text("prompt tokens").wait_for()
    page.tab.get_by_text("The same with curl").click()
    page.tab.get_by_label("curl line").wait_for()
    page.tab.evaluate("scrollTo(0, 0)")


class View(NamedTuple):
    """One picture."""

    address: str
    wait: Callable[[BrowserPage, Scene], None]
    """Brings the view about, and waits for what the picture is to show."""
    whole: bool
    """Whether the page goes on below the window."""


VIEWS: Final = {
    "overview": View("#/", _overview, whole=True),
    "models": View("#/models", _models, whole=False),
    "load": View("#/", _load, whole=False),
    "try": View("#/try", _try, whole=True),
}


if __name__ == "__main__":
    sys.exit(main())
