"""Sections that change while the server runs: what concerns requests counts at once, an engine's own only with its next start."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from protocol.config.settings import SECTIONS, Settings
from tests.conftest import StartServer
from tests.support.server import LemonbusServer
from tests.support.waiting import wait_for

CHAT, LOOP = "extra.tiny-chat", "extra.tiny-loop"
HI = [{"role": "user", "content": "Hi"}]


class ConfiguredServer:
    """A server with a configuration file, which a test writes anew."""

    def __init__(self, start: StartServer, file: Path) -> None:
        self._file = file
        line = msgspec.json.encode({"flags": {}, "config": str(file), "folder": "/"}).decode()
        self.server: LemonbusServer = start("tiny-chat", "tiny-loop", environment={"LEMONBUS_COMMAND_LINE": line})

    def reload(self, status: int = 200, **sections: Any) -> Any:
        """Write these sections beside the server's own settings, and reload; return the answer, which has this status."""
        own = {
            name: value
            for name, value in msgspec.to_builtins(self.server.settings).items()
            if name not in SECTIONS and value != getattr(Settings(), name)
        }
        written = {**own, **sections}
        self._file.write_text("".join(f"{name} = {_toml(value)}\n" for name, value in written.items()))
        answer = self.server.client.post("/internal/reload", {}, patience=60.0)
        assert answer.status == status, answer.body
        return answer.json()

    def tokens(self, model: str) -> int:
        """Ask a model for nine tokens; return how many there are."""
        body = {"model": model, "messages": HI, "max_tokens": 9}
        answer = self.server.client.post("/v1/chat/completions", body, patience=60.0)
        return answer.json()["usage"]["completion_tokens"] if answer.status == 200 else 0


def _toml(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_toml(key)} = {_toml(each)}" for key, each in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_toml, value)) + "]"
    return msgspec.json.encode(value).decode()


@pytest.fixture
def configured(start_server: StartServer, tmp_path: Path) -> ConfiguredServer:
    made = ConfiguredServer(start_server, tmp_path / "lemonbus.toml")
    assert (made.tokens(CHAT), made.tokens(LOOP)) == (9, 9)
    return made


def test_each_change_has_its_moment_and_touches_nothing_else(configured: ConfiguredServer) -> None:
    server = configured.server
    chat, loop = server.engine_pid(CHAT), server.engine_pid(LOOP)

    changed = configured.reload(models={LOOP: {"set": {"max_tokens": 3}, "aliases": ["small"]}})
    assert {change["setting"] for change in changed["changes"]} == {
        f'models."{LOOP}".{key}' for key in ("set", "aliases")
    }
    wait_for(lambda: configured.tokens("small") == 3, "rules and names count at once")
    assert (server.engine_pid(CHAT), server.engine_pid(LOOP)) == (chat, loop)

    changed = configured.reload(models={LOOP: {"options": {"slots": 2}}})
    moments = {change["setting"].rpartition(".")[2]: change["effects"] for change in changed["changes"]}
    assert moments["options"] == ["the model is reloaded when idle"]
    wait_for(lambda: server.engine_pid(LOOP) != loop, "the model with new options is reloaded", 60.0)
    assert configured.tokens(LOOP) == 9
    assert configured.tokens("small") == 0, "the alias is gone"
    assert server.engine_pid(CHAT) == chat

    loop = server.engine_pid(LOOP)
    refused = configured.reload(400, models={LOOP: {"options": {"slots": -1}}})
    assert f'models."{LOOP}".options.slots' in refused["message"]
    assert (configured.tokens(LOOP), server.engine_pid(LOOP)) == (9, loop)
