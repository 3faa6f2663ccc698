"""Chromium without a screen, driven by Playwright: what a person sees of the page, and what it does not show them.

Chromium comes from the distribution (``make browser``). Playwright brings only its driver, which needs no network.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import psutil

from protocol.runtime.deferred_module import DeferredModule
from tests.support import processes
from tests.support.waiting import DEADLINE, wait_for

if TYPE_CHECKING:
    from playwright import sync_api
else:
    sync_api = DeferredModule("playwright.sync_api")

CHROMIUM: Final = shutil.which("chromium") or shutil.which("chromium-browser") or ""
"""The path of the program, empty if there is none."""
DEADLINE_MS: Final = DEADLINE * 1000
MARK: Final = "BROWSER_UNDER_TEST"
"""A variable in the environment of each of its processes."""
ARGUMENTS: Final = (
    *("--disable-background-networking", "--disable-gpu", "--force-color-profile=srgb", "--font-render-hinting=none"),
    "--host-resolver-rules=MAP *.test 127.0.0.1",  # for pages of other hosts
)
WATCH: Final = """
addEventListener("securitypolicyviolation", (event) =>
  console.error(`refused by the policy: ${event.effectiveDirective} ${event.blockedURI}`));
"""
"""Runs before the page's own scripts."""


class RunningBrowser:
    """One Chromium for many tests. Each page that it opens has a profile of its own, so nothing of another test."""

    def __init__(self, driver: sync_api.Playwright, folder: Path) -> None:
        self.folder = folder
        environment: dict[str, str | float | bool] = {**os.environ, MARK: str(folder), "HOME": str(folder)}
        arguments = [*ARGUMENTS, *([] if os.geteuid() else ["--no-sandbox"])]  # root has no sandbox
        self._chromium = driver.chromium.launch(executable_path=CHROMIUM, args=arguments, env=environment)

    @contextmanager
    def page(
        self, origin: str, *, width: int = 1000, height: int = 900, dark: bool = False, key: str = ""
    ) -> Iterator[BrowserPage]:
        """Open an empty page for the server at ``origin``; at the end, the page must have done nothing that it may not do.

        ``key``: an API key that a person typed in earlier.
        """
        context = self._chromium.new_context(
            base_url=origin,
            viewport={"width": width, "height": height},
            color_scheme="dark" if dark else "light",
            reduced_motion="reduce",
            locale="en-GB",
            timezone_id="UTC",
        )
        try:
            context.set_default_timeout(DEADLINE_MS)
            context.add_init_script(WATCH)
            if key:
                context.add_init_script(
                    f"if (location.protocol === 'http:') sessionStorage.setItem('lemonbus-key', {json.dumps(key)})"
                )
            page = BrowserPage(context, origin)
            yield page
            page.assert_clean()
        finally:
            context.close()

    def close(self) -> None:
        self._chromium.close()


class BrowserPage:
    """A page and what it has done: requests, errors in its console, and exceptions."""

    def __init__(self, context: sync_api.BrowserContext, origin: str) -> None:
        self.tab = context.new_page()
        """Playwright's own page."""
        self.origin = origin
        self.context = context
        self.foreign: list[str] = []
        """Addresses of other origins that it asked for."""
        self.errors: list[str] = []
        self.may_fail: list[str] = []
        """Patterns of errors that the test brings about, such as those of Chromium about a server that is gone."""
        context.on("request", self._requested)
        self.tab.on("console", self._logged)
        self.tab.on("pageerror", lambda error: self.errors.append(f"exception: {error}"))
        self._tools = context.new_cdp_session(self.tab)

    def _requested(self, request: sync_api.Request) -> None:
        if not request.url.startswith((f"{self.origin}/", "data:", "blob:")):
            self.foreign.append(request.url)

    def _logged(self, message: sync_api.ConsoleMessage) -> None:
        if message.type in {"error", "warning"}:
            self.errors.append(f"{message.text} ({message.location.get('url', '')})")

    def assert_clean(self) -> None:
        """No error that the test does not expect, no request to another origin."""
        self.tab.evaluate("new Promise((done) => setTimeout(done))")  # events that wait are dispatched first
        unexpected = [error for error in self.errors if not any(re.search(each, error) for each in self.may_fail)]
        assert not unexpected, f"errors in the page: {unexpected}"
        assert not self.foreign, f"requests to other origins: {self.foreign}"

    def seen(self) -> str:
        """Return what the page shows now, and its errors."""
        try:
            shown = self.tab.locator("body").aria_snapshot(timeout=1000)
        except sync_api.Error as error:
            shown = f"nothing: {error}"
        return "\n".join([shown, *self.errors, *self.foreign])

    def go(self, path: str = "/") -> None:
        """Load an address of the server, or show another view (``#/models``)."""
        self.tab.goto(f"{self.origin}/{path.removeprefix('/')}")

    def by_role(self, role: Any, name: str | re.Pattern[str] = "", **more: Any) -> sync_api.Locator:
        """Find what a screen reader would call this."""
        return self.tab.get_by_role(role, **({"name": name} if name else {}), **more)

    def wait(self, script: str, what: str, argument: Any = None) -> Any:
        """Wait until an expression of JavaScript is true in the page; return its value."""
        return wait_for(lambda: self.tab.evaluate(script, argument), what)

    def counters(self) -> tuple[int, int, int]:
        """Collect the garbage; return the number of DOM nodes and of listeners, and the bytes of JavaScript's heap."""
        self._tools.send("HeapProfiler.collectGarbage")
        counted = self._tools.send("Memory.getDOMCounters")
        heap = self._tools.send("Runtime.getHeapUsage")
        return int(counted["nodes"]), int(counted["jsEventListeners"]), int(heap["usedSize"])

    def accessible(self) -> list[tuple[str, str]]:
        """Return role and name of every node that assistive technology gets to know."""
        nodes = self._tools.send("Accessibility.getFullAXTree")["nodes"]
        return [
            (str(node.get("role", {}).get("value", "")), str(node.get("name", {}).get("value", "")).strip())
            for node in nodes
            if not node.get("ignored")
        ]

    def audit(self, **options: Any) -> list[str]:
        """Return what axe-core finds wrong: its rule, and the elements."""
        if not self.tab.evaluate("'axe' in window"):
            self.tab.evaluate(axe())
        found = self.tab.evaluate("options => axe.run(document, options)", options)
        return [
            f"{rule['id']}: {node['target']} {node['any'][0]['message'] if node['any'] else node['html'][:120]}"
            for rule in found["violations"]
            for node in rule["nodes"]
        ]


def axe() -> str:
    """Return the source of axe-core, which checks a page for accessibility."""
    found = find_spec("axe_playwright_python")
    assert found is not None, "axe-playwright-python is not installed: make test installs it"
    assert found.submodule_search_locations is not None
    return (Path(found.submodule_search_locations[0]) / "axe.min.js").read_text()


@contextmanager
def browser_driver() -> Iterator[sync_api.Playwright]:
    """Start Playwright's driver. There is one in a process, and until it ends, the event loop of asyncio is occupied."""
    with sync_api.sync_playwright() as driver:
        sync_api.expect.set_options(timeout=DEADLINE_MS)
        yield driver


@contextmanager
def running_browser(driver: sync_api.Playwright) -> Iterator[RunningBrowser]:
    """Start Chromium; at the end, all of its processes are gone."""
    folder = Path(tempfile.mkdtemp(prefix="lb-browser-", dir="/tmp"))
    try:
        browser = RunningBrowser(driver, folder)
        try:
            yield browser
        finally:
            started = process_ids(folder)
            browser.close()
            wait_for(lambda: not any(map(processes.alive, started | process_ids(folder))), "Chromium has ended")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def process_ids(folder: Path) -> set[int]:
    """Return the processes of the browser with this folder. Its children write over their environment."""
    marked = {process.pid for process in processes.of_server(folder)}
    found = set(marked)
    for pid in marked:
        with contextlib.suppress(psutil.NoSuchProcess):
            found |= {process.pid for process in psutil.Process(pid).children(recursive=True)}
    return found
