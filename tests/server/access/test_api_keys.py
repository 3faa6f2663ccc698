"""With API keys: only the server accepts its keys, engines have others, and no child inherits a key."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import simple_websocket

from protocol.config.api_keys import KEYS_FILE, ApiKey, Scope, digest, write_keys
from tests.conftest import ADMIN_KEY, KEY
from tests.support import processes
from tests.support.clients.http_client import RawHttpClient
from tests.support.configuration_file import ConfiguredServer
from tests.support.server import LemonbusServer
from tests.support.waiting import wait_for

MODEL = "extra.tiny-chat"
CHAT = "/v1/chat/completions"
BODY = {"model": MODEL, "messages": [{"role": "user", "content": "hi"}], "max_tokens": 4}


@pytest.fixture(scope="module")
def server(keyed_server: LemonbusServer) -> LemonbusServer:
    """A server with a key for requests and one for administrators, and with no other model loaded."""
    assert keyed_server.client.post("/v1/unload", {}, **keyed_server.admin_headers).status == 200
    return keyed_server


def client(server: LemonbusServer, key: str) -> RawHttpClient:
    return RawHttpClient(server.port, {"Authorization": f"Bearer {key}"})


def test_no_engine_accepts_the_servers_key(server: LemonbusServer) -> None:
    allowed = client(server, KEY)
    assert server.client.post(CHAT, BODY).status == 401
    assert allowed.post(CHAT, BODY).status == 200
    (model,) = client(server, ADMIN_KEY).get("/v1/health").json()["all_models_loaded"]
    port = urlsplit(model["backend_url"]).port
    assert port
    for key in ("", "wrong", KEY, ADMIN_KEY):
        stranger = RawHttpClient(port, {"Authorization": f"Bearer {key}"} if key else {})
        assert stranger.post(CHAT, BODY).status == 401
        assert stranger.get("/slots").status == 401
    (engine,) = [process for process in server.process_tree() if processes.engine_key(process.pid)]
    assert (
        RawHttpClient(port, {"Authorization": f"Bearer {processes.engine_key(engine.pid)}"}).get("/slots").status == 200
    )


def test_no_child_has_a_key_in_its_environment_or_command_line(server: LemonbusServer) -> None:
    assert client(server, KEY).post(CHAT, BODY).status == 200
    # The keeper has them for the first supervisor, which removes them from the environment of all others.
    first = ("supervisor.keeper", "supervisor")
    children = [process for process in server.process_tree() if not any(map(process.runs, first))]
    assert {"gateway", "workers"} <= {word for process in children for word in process.words}
    assert any(process.option("--port") for process in children), "an engine is among them"
    for process in children:
        try:
            environment = Path(f"/proc/{process.pid}/environ").read_bytes()
        except OSError:
            environment = b""
        assert b"PATH=" in environment or not processes.alive(process.pid), "a job may have ended by now"
        for key in (KEY, ADMIN_KEY):
            assert key.encode() not in environment
            assert not process.mentions(key)


def test_an_inference_key_changes_nothing_and_sees_no_engine(server: LemonbusServer) -> None:
    allowed = client(server, KEY)
    assert allowed.post(CHAT, BODY).status == 200
    for path in ("params", "load", "unload", "pull", "delete", "install", "uninstall"):
        assert allowed.post(f"/v1/{path}", {"temperature": 0.5}).status == 403, path
    (model,) = allowed.get("/v1/health").json()["all_models_loaded"]
    assert model["backend_url"] == ""
    assert client(server, ADMIN_KEY).post("/v1/params", {"temperature": 0.5}).status == 200


def test_every_gateway_process_follows_the_file(server: LemonbusServer) -> None:
    path = Path(server.settings.state_dir) / KEYS_FILE
    new = client(server, "lb-new")
    assert new.get("/v1/models").status == 401
    write_keys(path, [ApiKey(name="new", sha256=digest("lb-new"), scopes=[Scope.INFERENCE], models=["other*"])])
    for _ in range(8):  # new connections, which any of the processes may accept
        assert client(server, "lb-new").get("/v1/models").json()["data"] == []
    refused = new.post(CHAT, BODY)
    assert (refused.status, refused.json()["error"]["code"]) == (403, "forbidden")
    assert MODEL in refused.json()["message"]
    assert new.post(CHAT, {**BODY, "model": ""}).status == 400, "it has used no model yet"
    write_keys(path, [])
    assert all(client(server, "lb-new").get("/v1/models").status == 401 for _ in range(8))
    wait_for(lambda: any(line.get("key") == "new" for line in server.lines), "the log has the name of the key")


ENCODED_KEY = base64.urlsafe_b64encode(ADMIN_KEY.encode()).decode().rstrip("=")


@pytest.mark.parametrize(
    ("protocols", "chosen"),
    [
        (["lemonbus", f"bearer.{ENCODED_KEY}"], "lemonbus"),
        ([f"bearer.{ENCODED_KEY}", "lemonbus"], "lemonbus"),
        ([f"bearer.{ENCODED_KEY}", "another"], None),
        (None, None),
    ],
    ids=str,
)
def test_a_page_reads_the_log_with_a_key_outside_of_headers(
    server: LemonbusServer, protocols: list[str] | None, chosen: str | None
) -> None:
    """The answer never has the key. But a browser expects a protocol that it offered, so it also offers another one."""
    url = f"ws://127.0.0.1:{server.port}/logs/stream"
    assert server.client.get(f"/logs/stream?api_key={ADMIN_KEY}").status == 401, "that is not a WebSocket"
    page = simple_websocket.Client.connect(
        url + ("" if protocols else f"?api_key={ADMIN_KEY}"), subprotocols=protocols, headers={"Origin": "http://other"}
    )
    try:
        assert page.subprotocol == chosen
        page.send('{"type": "logs.subscribe", "after_seq": null}')
        message = json.loads(page.receive(timeout=20) or "{}")
        assert message["type"] == "logs.snapshot"
    finally:
        page.close()
        page.thread.join(20)
    assert not any(ADMIN_KEY in json.dumps(line) or ENCODED_KEY in json.dumps(line) for line in server.lines)


def test_a_reload_with_another_key_ends_what_the_former_one_has_begun() -> None:
    keys = {"api_key": "former", "admin_api_key": ADMIN_KEY}
    with ConfiguredServer("tiny-loop", gateway_workers=1, ctx_size=65_536, **keys) as server:
        asked = {**BODY, "model": "extra.tiny-loop", "max_tokens": 60_000, "stream": True}
        ended, kept = (client(server, key).start("POST", CHAT, asked) for key in ("former", ADMIN_KEY))
        for stream in (ended, kept):
            stream.until(lambda it: it.events)
        server.configure(api_key="present")
        server.reload()
        ended.finish()
        assert not ended.done
        assert "the API key api_key has been revoked" in str(ended.events[-1].data)
        wait_for(lambda: client(server, "present").get("/v1/models").status == 200, "the new key is valid")
        seen = len(kept.events)
        kept.until(lambda it: len(it.events) > seen + 1)
        kept.hang_up()
