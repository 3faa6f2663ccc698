"""The commands of ``docs/backup.md``: a server is saved while clients use and change it, and another one starts from the copy."""

from __future__ import annotations

import os
import re
import shutil
import sqlite3
import subprocess
import threading
import tomllib
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from tests.support.configuration_file import ConfiguredServer
from tests.support.server import ROOT
from tests.support.waiting import wait_for

if TYPE_CHECKING:
    import openai

PAGE: Final = (ROOT / "docs" / "backup.md").read_text()
ADMIN: Final = "an-admin-key"
MODEL: Final = "extra.tiny-chat"
UPLOAD: Final = b'{"custom_id":"1"}\n' * 100_000
CHAT: Final = {"model": "luna", "messages": [{"role": "user", "content": "Hello"}], "max_tokens": 4}


def client_of(server: ConfiguredServer, key: str) -> openai.OpenAI:
    import openai  # noqa: PLC0415 - it takes a second to import

    return openai.OpenAI(base_url=f"http://127.0.0.1:{server.port}/v1", api_key=key, max_retries=0, timeout=30)


def follow(chapter: str, state: Path, config: Path, backup: Path) -> None:
    """Run the commands of a chapter in one shell, with the directories of the test in place of the first line."""
    text = PAGE.split(f"\n## {chapter}\n")[1].split("\n## ")[0]
    (commands,) = re.findall(r"```sh\nSTATE=[^\n]+\n(.*?)```", text, re.DOTALL)
    variables = {**os.environ, "STATE": str(state), "CONFIG": str(config), "BACKUP": str(backup)}
    command = ["sh", "-e", "-c", commands]
    done = subprocess.run(command, env=variables, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@contextmanager
def changing(server: ConfiguredServer) -> Iterator[None]:
    """Change the state of the server again and again, and use it, until the end of the block."""
    ended, begun = threading.Event(), threading.Event()
    failures: list[int] = []

    def change() -> None:
        number = 0
        while not ended.is_set():
            number += 1
            saved = server.client.post("/v1/params", {"top_k": number}, **server.admin_headers)
            begun.set()
            answer = server.client.post("/v1/chat/completions", CHAT, **server.admin_headers)
            with client_of(server, ADMIN) as admin:
                admin.files.delete(admin.files.create(file=b"{}" * 1_000_000, purpose="batch").id)
            failures.extend(each.status for each in (saved, answer) if each.status != 200)

    thread = threading.Thread(target=change)
    thread.start()
    try:
        assert begun.wait(30), "the first change was made"
        yield
    finally:
        ended.set()
        thread.join(60)
    assert failures == []


def requests_in(usage: Path, key: str) -> int:
    """Return how many requests of a key a database of the usage has; it is made with the first one."""
    select = "SELECT TOTAL(requests) FROM usage WHERE api_key = ?"
    with suppress(sqlite3.OperationalError), closing(sqlite3.connect(f"file:{usage}?mode=ro", uri=True)) as database:
        return int(database.execute(select, [key]).fetchone()[0])
    return 0


@pytest.mark.timeout(240)
def test_a_running_server_is_saved_and_restored_elsewhere(tmp_path: Path) -> None:
    backup = tmp_path / "backup"
    with ConfiguredServer("tiny-chat", admin_api_key=ADMIN, pin=[MODEL], gateway_workers=1) as server:
        admin, state = server.admin_headers, Path(server.settings.state_dir)
        added = server.client.post("/internal/keys", {"name": "team", "tokens_per_day": 100_000}, **admin)
        assert added.status == 200, added.json()
        key = added.json()["key"]
        team = {"Authorization": f"Bearer {key}"}
        options = {"model_name": MODEL, "ctx_size": 1024, "save_options": True}
        assert server.client.post("/v1/load", options, **admin).status == 200
        assert server.client.post("/api/copy", {"source": MODEL, "destination": "luna"}, **admin).status == 200
        for _ in range(3):
            assert server.client.post("/v1/chat/completions", CHAT, **team).status == 200
        wait_for(lambda: requests_in(state / "usage.sqlite3", "team") == 3, "the usage is on the disk")
        with client_of(server, key) as client:
            file = client.files.create(file=UPLOAD, purpose="batch").id
        config = tmp_path / "etc"
        config.mkdir()
        shutil.copy(server.file, config)
        with changing(server):
            follow("Save", state, config, backup)
    assert backup.stat().st_mode & 0o077 == 0
    follow("Restore", tmp_path / "state", tmp_path / "restored", backup)
    restored = tomllib.loads((tmp_path / "restored" / "lemonbus.toml").read_text())
    settings = {name: restored[name] for name in ("admin_api_key", "pin")}
    with ConfiguredServer("tiny-chat", state_dir=str(tmp_path / "state"), gateway_workers=1, **settings) as server:
        assert server.client.get("/v1/models", Authorization="Bearer unknown").status == 401
        assert server.client.post("/v1/chat/completions", CHAT, **team).status == 200
        (model,) = server.health()["all_models_loaded"]
        assert (model["model_name"], model["recipe_options"]["ctx_size"], model["pinned"]) == (MODEL, 1024, True)
        assert server.client.get("/v1/params", **admin).json()["set"] == ["top_k"]
        with client_of(server, key) as client:
            assert [(each.id, client.files.content(each.id).read()) for each in client.files.list()] == [(file, UPLOAD)]
        usage = Path(server.settings.state_dir) / "usage.sqlite3"
        wait_for(lambda: requests_in(usage, "team") == 4, "the usage goes on where the backup ended")
        assert server.health()["status"] == "ok"
