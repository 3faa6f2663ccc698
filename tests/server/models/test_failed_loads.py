"""A load that fails changes nothing: the model is as unknown as before, and its options are gone."""

from __future__ import annotations

import pytest

from tests.support.server import LemonbusServer

NEW = "nobody/nothing-GGUF"


@pytest.fixture
def server(unloaded_server: LemonbusServer) -> LemonbusServer:
    """An offline server, so that no download can succeed."""
    return unloaded_server


def names(server: LemonbusServer) -> list[str]:
    return [each["id"] for each in server.client.get("/v1/models?show_all=true").json()["data"]]


@pytest.mark.parametrize("options", [{}, {"ctx_size": 1024}, {"no_such_option": 1}])
def test_a_model_that_was_not_known_is_not_known_after_its_load_failed(
    server: LemonbusServer, options: dict[str, int]
) -> None:
    before, troubled = names(server), server.state()["troubled"]
    answer = server.client.post("/v1/load", {"model_name": NEW, **options})
    assert answer.status in (400, 503)
    assert names(server) == before
    chat = server.client.chat(NEW)
    assert (chat.status, chat.error["code"]) == (404, "model_not_found")
    similar = server.client.chat("nobody/nothing-GUF")
    assert NEW not in similar.error["message"]
    assert [each["model_name"] for each in server.state()["troubled"]] == [each["model_name"] for each in troubled]


def test_an_empty_file_is_reported_and_nothing_is_downloaded_for_it(shared_server: LemonbusServer) -> None:
    (shared_server.models / "hollow.gguf").touch()
    try:
        load = shared_server.client.post("/v1/load", {"model_name": "extra.hollow"})
        pull = shared_server.client.post("/v1/pull", {"model_name": "extra.hollow"})
        for answer in (load, pull, shared_server.client.chat("extra.hollow")):
            assert (answer.status, answer.error["code"]) == (500, "model_unusable")
            assert answer.error["message"].startswith("extra.hollow cannot be loaded: its file is empty; replace it")
            assert str(shared_server.models) not in answer.error["message"]
        assert not any(line["event"] == "download started" for line in shared_server.lines)
    finally:
        (shared_server.models / "hollow.gguf").unlink()
