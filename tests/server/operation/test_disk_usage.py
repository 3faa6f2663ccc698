"""``/internal/disk-usage``, ``/internal/prune`` and their commands at a real server, also while a model is being loaded."""

from __future__ import annotations

import itertools
import json
import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import KEY, StartServer
from tests.support.models.tiny_models import tiny_models
from tests.support.server import ROOT, LemonbusServer

CHAT, LINKED = "extra.tiny-chat", "extra.linked"


def leftover(server: LemonbusServer, name: str = "lost-1.0") -> Path:
    """Make a folder of downloaded files that no model has, an hour old."""
    folder = server.home / "cache" / "models" / name
    folder.mkdir(parents=True)
    file = folder / "model.gguf"
    shutil.copy(tiny_models() / "models" / "tiny-chat.gguf", file)
    os.utime(file, (1_000_000_000, 1_000_000_000))
    return folder


def command(server: LemonbusServer, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, ROOT / "deploy" / "launch", *words],
        env={**os.environ, "LEMONBUS_URL": f"http://127.0.0.1:{server.port}"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_du_and_prune(start_server: StartServer) -> None:
    server = start_server("tiny-chat")
    folder = leftover(server)
    used = server.client.get("/internal/disk-usage").json()
    found = {(item["kind"], item["name"]): item for item in used["items"]}
    assert found["model", CHAT]["size"] > 0
    assert ("state", "state") in found
    assert found["unknown_model", "lost-1.0"]["unused"] == "no model has these files"
    assert used["unused"] == found["unknown_model", "lost-1.0"]["size"]
    shown = command(server, "du")
    assert shown.returncode == 0, shown.stderr
    assert "unused: no model has these files" in shown.stdout
    assert "lemonbus prune" in shown.stdout

    refused = command(server, "prune")
    assert (refused.returncode, folder.exists()) == (2, True)
    dry = command(server, "prune", "--dry-run", "--json")
    assert (dry.returncode, json.loads(dry.stdout)["freed"], folder.exists()) == (0, 0, True)
    done = command(server, "prune", "--yes", "--json")
    answer = json.loads(done.stdout)
    assert done.returncode == 0, done.stderr
    assert [(item["path"], item["removed"]) for item in answer["items"]] == [(str(folder), True)]
    assert answer["freed"] == used["unused"]
    assert not folder.exists()
    assert command(server, "prune", "--yes").stdout == "Removed 0 of 0; 0 B were freed.\n"
    (removed,) = [line for line in server.lines if line["event"] == "unused files removed"]
    assert (removed["path"], removed["bytes"]) == (str(folder), answer["freed"])


def test_a_model_that_is_loaded_meanwhile_keeps_its_files(start_server: StartServer) -> None:
    """Its files are in a folder that no checkpoint has, and it is loaded and unloaded while files are removed again and again."""
    server = start_server("tiny-embed")
    folder = leftover(server)
    (server.models / "linked.gguf").symlink_to(folder / "model.gguf")
    stopped = threading.Event()
    answers: list[Any] = []

    def prune() -> None:
        for number in itertools.count():
            leftover(server, f"lost-2.{number}")
            answers.append(server.client.post("/internal/prune", {}))
            if stopped.is_set():
                return

    thread = threading.Thread(target=prune)
    thread.start()
    try:
        for _ in range(5):
            loaded = server.client.post("/v1/load", {"model_name": LINKED})
            assert loaded.status == 200, loaded.json()
            chat = {"model": LINKED, "messages": [{"role": "user", "content": "Hello"}], "max_tokens": 2}
            assert server.client.post("/v1/chat/completions", chat).status == 200
            assert server.client.post("/v1/unload", {"model_name": LINKED}).status == 200
    finally:
        stopped.set()
        thread.join(60)
    assert (folder / "model.gguf").exists()
    assert answers
    for answer in answers:
        assert answer.status == 200, answer.json()
        assert [item["removed"] for item in answer.json()["items"]] == [True]


@pytest.mark.parametrize("method", ["get", "post"])
def test_only_an_administrator_may_look_and_remove(method: str, keyed_server: LemonbusServer) -> None:
    key = {"Authorization": f"Bearer {KEY}"}
    if method == "get":
        assert keyed_server.client.get("/internal/disk-usage", **key).status == 403
    else:
        assert keyed_server.client.post("/internal/prune", {"dry_run": True}, **key).status == 403
