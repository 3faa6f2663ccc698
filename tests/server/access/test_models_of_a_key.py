"""A key for some models learns about no other model, by any route or message."""

from __future__ import annotations

from pathlib import Path

import pytest

from protocol.config.api_keys import KEYS_FILE, ApiKey, Scope, digest, write_keys
from tests.conftest import KEY
from tests.support.clients.http_client import RawHttpClient
from tests.support.clients.overview_follower import OverviewFollower
from tests.support.server import LemonbusServer

CHAT, OTHER = "extra.tiny-chat", "extra.tiny-loop"
PATH = "/v1/chat/completions"
SECRET = b"tiny-loop"


@pytest.fixture(scope="module")
def server(keyed_server: LemonbusServer) -> LemonbusServer:
    """A server with two loaded models; the key may not use the one that was used last."""
    for model in (CHAT, OTHER):
        body = {"model": model, "messages": [{"role": "user", "content": "hi"}], "max_tokens": 3}
        assert keyed_server.client.post(PATH, body, **keyed_server.admin_headers).status == 200
    return keyed_server


@pytest.fixture(scope="module")
def client(server: LemonbusServer) -> RawHttpClient:
    scopes = [Scope.INFERENCE, Scope.METRICS]
    some = ApiKey(name="some", sha256=digest("lb-some"), scopes=scopes, models=["*tiny-chat"])
    write_keys(Path(server.settings.state_dir) / KEYS_FILE, [some])
    return RawHttpClient(server.port, {"Authorization": "Bearer lb-some"})


def test_no_reading_route_names_another_model(server: LemonbusServer, client: RawHttpClient) -> None:
    paths = [
        path
        for path, operations in client.get("/openapi.json").json()["paths"].items()
        if "get" in operations and "{" not in path and not path.endswith("/stream")
    ]
    assert {"/v1/health", "/v1/stats", "/metrics", "/api/ps", "/api/tags", "/v1/slots", "/props", "/status"} <= {*paths}
    shown = 0
    for path in [*paths, "/v1/models?show_all=true"]:
        answer = client.get(path)
        assert answer.status in (200, 400, 403, 426, 501), path
        assert SECRET not in answer.body, path
        shown += b"tiny-chat" in answer.body
    assert shown > 5
    with OverviewFollower(client) as page:
        page.next_second()
        assert CHAT in page.state["models"]
        assert SECRET not in page.exchange.body
    everything = RawHttpClient(server.port, {"Authorization": f"Bearer {KEY}"})
    with OverviewFollower(everything) as page:
        assert OTHER in page.state["models"]
    assert SECRET in everything.get("/v1/health").body, "a key for all models sees it"
    assert SECRET in everything.get("/metrics").body


def test_health_and_stats_are_those_of_its_own_models(client: RawHttpClient) -> None:
    health = client.get("/v1/health").json()
    assert [each["model_name"] for each in health["all_models_loaded"]] == [CHAT]
    assert health["model_loaded"] == CHAT
    assert client.get("/status").json()["models_loaded"] == 1
    assert client.get("/v1/stats").json()["model"] == CHAT


@pytest.mark.parametrize("path", ["/v1/stats", "/v1/slots", "/props"])
def test_it_cannot_ask_for_another_one_by_name(client: RawHttpClient, path: str) -> None:
    assert client.get(f"{path}?model={CHAT}").status == 200
    assert client.get(f"{path}?model={OTHER}").status in (403, 404)


def test_an_unknown_name_suggests_no_model_of_other_keys(server: LemonbusServer, client: RawHttpClient) -> None:
    wrong = "extra.tiny-loo"
    body = {"model": wrong, "messages": [{"role": "user", "content": "hi"}]}
    posts = [client.post(path, body) for path in (PATH, "/api/chat", "/v1/messages/count_tokens", "/api/show")]
    gets = [
        client.get(f"{path}{wrong}") for path in ("/v1/stats?model=", "/props?model=", "/v1/models/", "/api/models/")
    ]
    for answer in (*posts, *gets):
        assert answer.status in (400, 404)
        assert SECRET not in answer.body
    assert SECRET in server.client.post(PATH, body, **server.admin_headers).body, "a key for all models is helped"
    assert b"tiny-chat" in client.post(PATH, {**body, "model": "extra.tiny-cha"}).body


def test_without_a_name_its_own_model_answers(client: RawHttpClient) -> None:
    assert client.get("/v1/slots").status == 200
    assert client.get("/props").json()["model_alias"] == CHAT
    body = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 2}
    assert client.post(PATH, body).json()["model"] == CHAT
