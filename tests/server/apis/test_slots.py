"""The slots of a real llama-server: their state, and saving, restoring and erasing their prompt caches."""

from __future__ import annotations

import pytest

from tests.support.server import LemonbusServer

CHAT = "extra.tiny-chat"


def test_the_state_of_slots(shared_server: LemonbusServer) -> None:
    assert shared_server.client.chat(CHAT).status == 200
    slots = shared_server.client.get("/v1/slots").json()
    assert [slot["id"] for slot in slots] == [0, 1, 2, 3]
    for slot in slots:
        assert slot["state"] == "idle"
        assert slot["task_id"] == -1
        assert slot["cache_tokens"] >= 0
        assert {"has_next_token", "n_remain", "n_decoded"} <= set(slot["next_token"])


def test_slots_show_no_text_of_a_client(shared_server: LemonbusServer) -> None:
    begun = {"role": "assistant", "content": "hunter2 in the answer"}
    asked = {"role": "user", "content": "hunter2 in the question"}
    grammar = 'root ::= "hunter2" "!"'
    body = {"stop": ["hunter2!!"], "grammar": grammar, "max_tokens": 2}
    assert shared_server.client.chat(CHAT, messages=[asked, begun], **body).status == 200
    text = shared_server.client.get(f"/v1/slots?model={CHAT}").body.decode()
    assert '"temperature"' in text
    assert "hunter2" not in text


def test_slots_are_saved_and_restored(shared_server: LemonbusServer) -> None:
    assert shared_server.client.chat(CHAT).status == 200
    slots = shared_server.client.get(f"/v1/slots?model={CHAT}").json()
    used = [slot["id"] for slot in slots if slot["cache_tokens"]]
    path = f"/v1/slots/{used[0]}?model={CHAT}&action="
    saved = shared_server.client.post(path + "save", {"filename": "one.bin"})
    assert saved.status == 200, saved
    assert saved.json()["filename"] == "one.bin"
    assert saved.json()["n_saved"] > 0
    assert shared_server.client.post(path + "erase", {}).json()["id_slot"] == used[0]
    restored = shared_server.client.post(path + "restore", {"filename": "one.bin"}).json()
    assert restored["n_restored"] == saved.json()["n_saved"]


@pytest.mark.parametrize(
    ("path", "name", "status"),
    [
        ("0?action=save", "../one.bin", 400),
        ("99?action=erase", "one.bin", 404),
        ("0?action=restore", "never-saved.bin", 400),
    ],
)
def test_slot_requests_that_are_refused(shared_server: LemonbusServer, path: str, name: str, status: int) -> None:
    """The gateway's own checks have a table in ``tests/gateway/api``; these reach the engine, except for the first."""
    assert shared_server.client.chat(CHAT, max_tokens=1).status == 200
    answer = shared_server.client.post(f"/v1/slots/{path}", {"filename": name})
    assert answer.status == status, answer
    assert answer.error["message"]
    assert str(shared_server.home) not in answer.body.decode()
