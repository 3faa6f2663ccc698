"""The lists of models of other servers (``[remotes.NAME]``) as they change: long ones, and servers that are away."""

from __future__ import annotations

from typing import Any

from protocol.messages.remote_models import MAX_MODELS
from tests.conftest import StartServer
from tests.support.fakes.scripted_server import ScriptedServer, chunked
from tests.support.server import LemonbusServer
from tests.support.waiting import wait_for

MESSAGES = [{"role": "user", "content": "Hi"}]
ANSWER = chunked(
    b'data: {"choices":[{"index":0,"delta":{"content":"yes"}}]}\n\n',
    b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\n',
)


def listed(server: LemonbusServer, remote: str) -> set[str]:
    names = {str(each["id"]) for each in server.client.get("/v1/models").json()["data"]}
    return {name.removeprefix(f"{remote}/") for name in names if name.startswith(f"{remote}/")}


def chat(server: LemonbusServer, model: str) -> Any:
    return server.client.start_chat(model, stream=True).finish()


def test_a_list_of_thousands_that_changes_and_whose_server_goes_and_comes_back(start_server: StartServer) -> None:
    names = [f"model-{number}" for number in range(MAX_MODELS + 100)]
    with ScriptedServer(dict.fromkeys(names, ANSWER)) as far:
        far.models = names
        server = start_server(remotes={"far": {"url": far.url, "refresh": 1}})
        wait_for(lambda: listed(server, "far") == set(names[:MAX_MODELS]), "as many as are taken are listed")
        assert chat(server, "far/model-7").text == "yes"

        far.models = [*names[:7], "new"]
        wait_for(lambda: listed(server, "far") == set(far.models), "the list has changed")
        assert server.client.chat("far/model-8").status == 404
        assert chat(server, "far/model-7").text == "yes", "it is loaded, so its server is asked"

        far.listing = False
        wait_for(lambda: "remotes.far" in str(server.health()["problems"]), "health says that it is away")
        assert listed(server, "far") == set(far.models), "its last list is used"

        far.listing, far.models = True, names[:8]
        wait_for(lambda: listed(server, "far") == set(names[:8]), "it is back")
        assert "remotes.far" not in str(server.health()["problems"])
        assert chat(server, "far/model-6").text == "yes"
