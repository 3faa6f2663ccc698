"""Reports about a file of API keys that cannot be used: once in the log, and in health as long as the problem lasts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from protocol.config.api_keys import KEYS_FILE
from protocol.config.settings import Settings
from protocol.runtime import logs
from protocol.runtime.loop import Loop
from supervisor.runtime.key_file_watch import CHECK_INTERVAL_S, KeyFileWatch
from tests.gateway.access.key_files import key, store


def test_a_problem_is_logged_once_and_shown_until_it_is_mended(tmp_path: Path, records: list[dict[str, Any]]) -> None:
    logs.configure("supervisor", "info", "json")
    time = 0.0
    loop = Loop(lambda: time)
    watch = KeyFileWatch(loop, Settings(state_dir=str(tmp_path), runtime_dir=str(tmp_path)))
    assert watch.problems == []
    store(tmp_path, key("a"))
    assert watch.problems == []
    (tmp_path / KEYS_FILE).write_text("{")
    for _ in range(3):
        time += CHECK_INTERVAL_S + 0.01
        loop.run_once(0.0)
    (problem,) = watch.problems
    assert problem.startswith("the file of API keys cannot be used: keys.json: ")
    assert "stay valid" in problem
    assert str(tmp_path) not in problem
    (tmp_path / KEYS_FILE).unlink()
    (problem,) = watch.problems
    assert problem.startswith("no key of the file of API keys is valid: keys.json: it was deleted")
    store(tmp_path, key("a"))
    assert watch.problems == []
    assert [record["level"] for record in records] == ["error", "error", "info"]


def test_only_keys_that_expire_have_a_date(tmp_path: Path) -> None:
    store(tmp_path, key("always"), key("guest", expires=2e9))
    watch = KeyFileWatch(Loop(lambda: 0.0), Settings(state_dir=str(tmp_path), runtime_dir=str(tmp_path)))
    assert watch.expiries() == {"guest": 2e9}
