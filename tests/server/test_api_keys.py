"""With an API key: who has it is answered, by the server and by its engines; who has not gets past neither."""

from __future__ import annotations

from urllib.parse import urlsplit

import pytest

from tests.support.http_client import RawHttpClient
from tests.support.server import LemonbusServer

MODEL = "extra.tiny-chat"
CHAT = "/v1/chat/completions"
BODY = {"model": MODEL, "messages": [{"role": "user", "content": "hi"}], "max_tokens": 4}


@pytest.mark.parametrize("key", ["k3y-/+=", "one,two"])
def test_no_way_past_the_key(key: str) -> None:
    bearer = {"Authorization": f"Bearer {key}"}
    with LemonbusServer("tiny-chat", api_key=key, gateway_workers=1) as server:
        allowed = RawHttpClient(server.port, bearer)
        assert server.client.post(CHAT, BODY).status == 401
        assert allowed.post(CHAT, BODY).status == 200
        (model,) = allowed.get("/v1/health").json()["all_models_loaded"]
        port = urlsplit(model["backend_url"]).port
        assert port
        for stranger in (RawHttpClient(port), RawHttpClient(port, {"Authorization": "Bearer wrong"})):
            assert stranger.post(CHAT, BODY).status == 401
            assert stranger.get("/slots").status == 401
        if "," not in key:
            assert RawHttpClient(port, bearer).post(CHAT, BODY).status == 200
        words = [word for process in server.process_tree() for word in process.words]
        assert "--port" in words
        assert key not in words
