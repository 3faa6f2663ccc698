"""The log in the page, while 2,000 lines come each second: few are kept, and the page stays usable."""

from __future__ import annotations

from tests.browser.conftest import OpenPage, StartStandIn
from tests.browser.overviews import START, overview, ready

SHOWN = 1000
"""Lines that the page shows at most."""
NODES = 12
"""Of each line, its texts included."""
WRITES_A_LOG = """
window.written = 0;
window.WebSocket = class {
  constructor() { this.timer = setTimeout(() => this.onopen?.()); }
  send() {
    this.onmessage({ data: JSON.stringify({ type: "logs.snapshot", boot: "b", entries: [] }) });
    const began = performance.now() - window.written / 2;
    this.timer = setInterval(() => { while (window.written < 2 * (performance.now() - began)) this.write(); }, 10);
  }
  write() {
    const seq = (window.written += 1);
    const line = `line ${seq} of a model that answers a request`;
    const entry = { seq, timestamp: "2031-05-01 09:05:07.123", severity: seq % 7 ? "Info" : "Error", tag: "Engine", line };
    this.onmessage({ data: JSON.stringify({ type: "logs.entry", entry }) });
  }
  close() { clearInterval(this.timer); }
};
"""
"""A WebSocket that writes a log by itself, two lines for each millisecond that passes: only the page and the browser are busy."""


def test_the_page_stays_usable_while_many_lines_come(start_stand_in: StartStandIn, open_page: OpenPage) -> None:
    server = start_stand_in(overview({"a-model": ready()}))
    page = open_page(server)
    page.tab.add_init_script(WRITES_A_LOG)
    page.tab.reload()
    page.go("#/logs")
    page.wait("written > 3000", "there are lines")
    before, first = page.counters()[0], page.tab.evaluate("written")
    # It reads what its server sends, it takes what a person types, and it filters.
    server.send("patch", {"time": START + 1, "running": 3})
    page.wait("document.querySelector('.facts').textContent.includes('Running3')", "the header goes on")
    page.tab.get_by_label("Text").fill("error line 7")
    page.wait(
        "(() => { const lines = [...document.querySelectorAll('.log-line')].slice(-50);"
        " return lines.length > 10 && lines.every((line) => /error.*line \\d*7/.test(line.textContent)); })()",
        "only lines with these words are shown",
    )
    page.tab.get_by_label("Text").fill("")
    page.tab.locator(".log-info").first.wait_for()
    page.wait("(now) => written > now + 3000", "it goes on", page.tab.evaluate("written"))
    after, last = page.counters()[0], page.tab.evaluate("written")
    assert page.tab.evaluate("document.querySelectorAll('.log-line').length") <= SHOWN
    assert after < before + NODES * (last - first) / 3, f"DOM nodes: {before}, then {after}, {last - first} lines later"
    page.by_role("button", "Pause").click()
    shown = page.tab.locator(".log-line").last.inner_text()
    page.wait("(now) => written > now + 500", "more lines come", page.tab.evaluate("written"))
    assert page.tab.locator(".log-line").last.inner_text() == shown
