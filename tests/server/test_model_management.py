"""Models, load, unload, slots, stats and health, as the documents show them."""

from __future__ import annotations

import pytest

from tests.conftest import StartServer
from tests.support.server import LemonbusServer

CHAT, LOOP = "extra.tiny-chat", "extra.tiny-loop"
PREFIXES = ["/v1", "/api/v1", "/v0", "/api/v0"]


@pytest.fixture(scope="module")
def server(start_module_server: StartServer) -> LemonbusServer:
    return start_module_server("tiny-chat", "tiny-loop", "tiny-vision", "tiny-embed", "tiny-rerank", load=[CHAT])


@pytest.mark.parametrize("prefix", PREFIXES)
def test_models(server: LemonbusServer, prefix: str) -> None:
    listed = server.client.get(f"{prefix}/models").json()
    assert listed["object"] == "list"
    found = {entry["id"]: entry for entry in listed["data"]}
    assert set(found) >= {CHAT, LOOP, "extra.tiny-vision", "extra.tiny-embed", "extra.tiny-rerank"}
    for entry in found.values():
        assert entry["object"] == "model"
        assert isinstance(entry["created"], int)
        assert {"owned_by", "checkpoint", "recipe"} <= set(entry)
    assert "vision" in found["extra.tiny-vision"]["labels"]
    one = server.client.get(f"{prefix}/models/{CHAT}").json()
    assert one.items() >= found[CHAT].items()
    assert server.client.get(f"{prefix}/models/nobody/knows:this").status == 404


def test_models_with_all(server: LemonbusServer) -> None:
    every = server.client.get("/v1/models?show_all=true").json()["data"]
    builtin = next(entry for entry in every if entry["id"] == "SmolLM2-135M-Instruct-GGUF")
    assert builtin["downloaded"] is False
    assert builtin["size"] > 0
    assert {"name", "labels", "recipe"} <= set(builtin)


def test_load_and_unload(server: LemonbusServer) -> None:
    loaded = server.client.post("/v1/load", {"model_name": LOOP})
    assert loaded.status == 200, loaded
    assert loaded.json()["status"] == "success"
    assert loaded.json()["message"] == f"Loaded model: {LOOP}"
    engine = server.engine_pid(LOOP)
    assert server.client.post("/v1/load", {"model_name": LOOP}).status == 200
    assert server.engine_pid(LOOP) == engine, "idempotent"
    assert server.client.post("/v1/load", {"model_name": LOOP, "ctx_size": 2048}).status == 200
    assert server.engine_pid(LOOP) != engine, "other options: reloaded"
    health = server.health()
    assert health["model_loaded"] == LOOP
    entry = next(each for each in health["all_models_loaded"] if each["model_name"] == LOOP)
    assert entry["recipe_options"]["ctx_size"] == 2048
    assert server.client.post("/v1/unload", {"model_name": LOOP}).status == 200
    assert server.engine_now(LOOP) is None
    assert server.client.post("/v1/unload", {"model_name": LOOP}).status == 404
    assert server.client.post("/v1/load", {"model_name": "nobody"}).status == 404


def test_an_empty_file_is_told_and_nothing_is_downloaded_for_it(server: LemonbusServer) -> None:
    (server.models / "hollow.gguf").touch()
    try:
        load = server.client.post("/v1/load", {"model_name": "extra.hollow"})
        pull = server.client.post("/v1/pull", {"model_name": "extra.hollow"})
        for answer in (load, pull, server.client.chat("extra.hollow")):
            assert (answer.status, answer.error["code"]) == (503, "load_failed")
            assert answer.error["message"].startswith("extra.hollow cannot be loaded: its file is empty; put")
            assert str(server.models).encode() not in answer.body
        assert not any(line["event"] == "download started" for line in server.lines)
    finally:
        (server.models / "hollow.gguf").unlink()


@pytest.mark.parametrize("prefix", PREFIXES)
def test_slots(server: LemonbusServer, prefix: str) -> None:
    assert server.client.chat(CHAT).status == 200
    slots = server.client.get(f"{prefix}/slots").json()
    assert [slot["id"] for slot in slots] == [0, 1, 2, 3]
    for slot in slots:
        assert slot["state"] == "idle"
        assert slot["task_id"] == -1
        assert slot["cache_tokens"] >= 0
        assert {"has_next_token", "n_remain", "n_decoded"} <= set(slot["next_token"])


def test_slots_are_saved_and_restored(server: LemonbusServer) -> None:
    assert server.client.chat(CHAT).status == 200
    full = [slot["id"] for slot in server.client.get(f"/v1/slots?model={CHAT}").json() if slot["cache_tokens"]]
    path = f"/v1/slots/{full[0]}?model={CHAT}&action="
    saved = server.client.post(path + "save", {"filename": "one.bin"})
    assert saved.status == 200, saved
    assert saved.json()["filename"] == "one.bin"
    assert saved.json()["n_saved"] > 0
    assert server.client.post(path + "erase", {}).json()["id_slot"] == full[0]
    restored = server.client.post(path + "restore", {"filename": "one.bin"}).json()
    assert restored["n_restored"] == saved.json()["n_saved"]


@pytest.mark.parametrize(
    ("path", "name", "status"),
    [
        ("0?action=save", "../one.bin", 400),
        ("0?action=save", "/etc/passwd", 400),
        ("0?action=save", "a\0b", 400),
        ("0?action=save", "..", 400),
        ("0?action=save", "", 400),
        ("0?action=save", 7, 400),
        ("0?action=save", None, 400),
        ("0?action=dance", "one.bin", 400),
        ("0", "one.bin", 400),
        ("99?action=erase", "one.bin", 404),
        ("x?action=erase", "one.bin", 400),
        ("0?action=restore", "never-saved.bin", 400),
    ],
)
def test_bad_slot_requests(server: LemonbusServer, path: str, name: object, status: int) -> None:
    assert server.client.chat(CHAT, max_tokens=1).status == 200
    answer = server.client.post(f"/v1/slots/{path}", {} if name is None else {"filename": name})
    assert answer.status in {status, 404 if status == 404 or path.startswith("x") else status}, answer
    assert answer.error["message"]
    assert str(server.home) not in answer.body.decode()


def test_stats(server: LemonbusServer) -> None:
    assert server.client.chat(CHAT).status == 200
    stats = server.client.get("/v1/stats").json()
    assert stats["output_tokens"] == 21
    assert stats["time_to_first_token"] > 0
    assert stats["tokens_per_second"] > 0
    assert stats["prompt_tokens"] >= stats["input_tokens"] >= 0
    assert stats["decode_token_times"]


def test_health_and_live(server: LemonbusServer) -> None:
    health = server.health()
    assert health["status"] == "ok"
    assert health["websocket_port"] == server.port
    assert set(health["max_models"]) >= {"audio", "embedding", "image", "llm", "reranking", "tts"}
    for path in ("/live", "/health", "/v1/health", "/v1/models"):
        head = server.client.start("HEAD", path).finish()
        assert head.status == 200
        assert head.body == b""
