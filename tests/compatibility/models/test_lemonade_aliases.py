"""Aliases, registrations without a download and lists of files, asked of a real server as Lemonade's clients do it."""

from __future__ import annotations

from typing import Any

from tests.compatibility.hub_server import PHI, ids, registered
from tests.support.server import LemonbusServer

CHAT = "extra.tiny-chat"
ALIASES = "/internal/aliases"


def aliases(server: LemonbusServer) -> dict[str, str]:
    return {each["alias"]: each["target"] for each in server.client.get(ALIASES).json()["aliases"]}


def test_an_alias_stands_for_its_model_until_it_is_removed(changing_server: LemonbusServer) -> None:
    server, alias = changing_server, "my/chat-model"
    answer = server.client.post(ALIASES, {"alias": alias, "target": CHAT})
    assert answer.json() == {"status": "ok", "alias": alias, "target": CHAT}
    assert aliases(server)[alias] == CHAT
    assert server.client.chat(alias, max_tokens=1).status == 200
    (shown,) = [each for each in server.client.get("/v1/models").json()["data"] if each["id"] == alias]
    assert shown["root"] == CHAT
    path = f"{ALIASES}/{alias}"
    assert server.client.start("DELETE", path).finish().json() == {"status": "deleted", "alias": alias}
    assert alias not in aliases(server)
    assert server.client.chat(alias).status == 404
    assert server.client.start("DELETE", path).finish().status == 404
    for target in (CHAT, "extra.tiny-loop"):
        answer = server.client.post(ALIASES, {"alias": "extra.tiny-loop", "target": target})
        assert (answer.status, answer.error["param"]) == (409, "alias"), "it is the name of a model"


def test_a_model_is_registered_without_a_download_and_downloaded_by_a_pull(server: LemonbusServer, hub: Any) -> None:
    name = PHI["model_name"]
    answer = server.client.post("/v1/models/register", {**PHI, "reasoning": True}).json()
    assert (answer["status"], answer["downloaded"]) == ("success", False)
    assert "reasoning" in answer["labels"]
    assert registered(server)["Phi-4-Mini-GGUF"].items() >= {"checkpoint": PHI["checkpoint"]}.items()
    assert not hub.transfers
    assert name not in ids(server)
    assert server.client.post("/v1/models/register", PHI).status == 200, "labels may change"
    other = server.client.post("/v1/models/register", {**PHI, "checkpoint": "shop/other-GGUF:Q4_0"})
    assert (other.status, other.error["code"]) == (409, "conflict")
    assert server.client.get(f"/v1/models/{name}/files").json() == {"model_id": name, "files": []}
    assert server.client.post("/v1/pull", {"model_name": name}).status == 200
    (file,) = server.client.get(f"/v1/models/{name}/files?include_paths=true").json()["files"]
    assert (file["name"], file["role"], file["exists"]) == ("Phi-4-mini-instruct-Q4_K_M.gguf", "main", True)
    assert file["path"].endswith(file["name"])
    assert file["size_bytes"] > 0


def test_files_of_an_unknown_model(changing_server: LemonbusServer) -> None:
    answer = changing_server.client.get("/v1/models/No/Such-Model/files")
    assert (answer.status, answer.error["code"]) == (404, "model_not_found")
