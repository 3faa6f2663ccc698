"""Downloads through the whole server: progress, joining, hanging up, and continuing after the death of any process."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import StartServer
from tests.server.models.pulls import (
    ENOUGH,
    HELD,
    MODEL,
    NAME,
    REPOSITORY,
    OwnHub,
    begun,
    files_of_jobs,
    forget_downloads,
    hub_with_settings,
    jobs,
    kill_all,
    named,
    start,
)
from tests.support import processes
from tests.support.fakes.hub import Hub, gguf
from tests.support.server import LemonbusServer
from tests.support.waiting import wait_for

FIELDS = ["file", "file_index", "total_files", "bytes_downloaded", "bytes_total", "percent"]


@pytest.fixture
def own_hub(tmp_path: Path) -> Iterator[OwnHub]:
    with hub_with_settings(tmp_path) as found:
        yield found


@pytest.fixture
def start_own_server(own_hub: OwnHub, start_server: StartServer) -> Callable[[], LemonbusServer]:
    """Opens servers of a test's own, which ends them."""
    return lambda: start_server("tiny-chat", **own_hub[1])


@pytest.fixture(scope="module")
def hub_and_server(
    tmp_path_factory: pytest.TempPathFactory, start_module_server: StartServer
) -> Iterator[tuple[Hub, LemonbusServer]]:
    with hub_with_settings(tmp_path_factory.mktemp("hub")) as (hub, settings):
        yield hub, start_module_server("tiny-chat", **settings)


@pytest.fixture
def server(hub_and_server: tuple[Hub, LemonbusServer]) -> LemonbusServer:
    """The server of all tests that leave it alive; each finds nothing downloaded, and a hub without faults."""
    forget_downloads(*hub_and_server)
    return hub_and_server[1]


@pytest.fixture
def hub(hub_and_server: tuple[Hub, LemonbusServer]) -> Hub:
    """The hub of :func:`server`."""
    return hub_and_server[0]


def test_a_stream_of_progress_has_the_documents_fields(hub: Hub, server: LemonbusServer) -> None:
    hub.rate = 2_000_000
    answer = start(server, stream=True).finish()
    assert answer.status == 200
    reported = named(answer, "progress")
    assert reported
    for event in reported:
        assert list(event) == FIELDS
        assert 0 <= event["bytes_downloaded"] <= event["bytes_total"]
        assert event["percent"] == 100 * event["bytes_downloaded"] // event["bytes_total"]
        assert (event["file_index"], event["total_files"]) in {(1, 2), (2, 2)}
    assert named(answer, "complete") == [{"file_index": 2, "total_files": 2, "percent": 100}]
    assert answer.events[-1].name == "complete"
    seconds = answer.events[-1].at - answer.started
    assert len(reported) < 10 * seconds + 2, "ten a second at most"


def test_a_second_pull_joins_and_a_client_that_hangs_up_loses_nothing(hub: Hub, server: LemonbusServer) -> None:
    hub.hold_after = HELD
    first = start(server, stream=True).until(begun)
    second, third = start(server, stream=True), start(server)
    second.until(lambda exchange: exchange.status)
    first.hang_up()
    hub.released.set()
    assert named(second.finish(), "complete")
    assert third.finish().json()["status"] == "success"
    assert [file for file, _ in hub.transfers] == ["tiny-Q4_0.gguf", "mmproj-F16.gguf"]
    assert start(server).finish().status == 200
    assert len(hub.transfers) == 2


def test_a_download_whose_job_is_killed_goes_on_with_the_next_pull(hub: Hub, server: LemonbusServer) -> None:
    hub.hold_after = HELD
    broken = start(server, stream=True).until(begun)
    for job in jobs(server):
        processes.kill(job)
    broken.finish()
    (error,) = named(broken, "error")
    assert isinstance(error["error"], str)
    assert "what was fetched is kept" in error["error"]
    assert not named(broken, "complete")
    continues(hub, server)
    wait_for(lambda: not jobs(server), "the jobs have ended")
    wait_for(lambda: not files_of_jobs(server), f"their files are gone: {files_of_jobs(server)}")


def test_a_download_goes_on_however_the_server_ended_and_nothing_is_registered_by_half(
    own_hub: OwnHub, start_own_server: Callable[[], LemonbusServer]
) -> None:
    hub, _ = own_hub
    server = start_own_server()
    for end in (LemonbusServer.stop, kill_all):
        forget_downloads(hub, server)
        hub.hold_after = HELD
        before = [each["id"] for each in server.client.get("/v1/models").json()["data"]]
        broken = start(server, stream=True).until(begun)
        end(server)
        broken.finish()
        assert not named(broken, "complete")
        server = start_own_server()
        assert [each["id"] for each in server.client.get("/v1/models").json()["data"]] == before
        assert server.state()["problems"] == []
        continues(hub, server)


def test_a_download_does_not_notice_that_the_supervisor_was_killed(hub: Hub, server: LemonbusServer) -> None:
    hub.hold_after = HELD
    answer = start(server, stream=True).until(begun)
    left = start(server)
    (job,) = jobs(server)
    server.kill_supervisor()
    wait_for(lambda: [line for line in server.lines if line["event"] == "recovered"], "the next one has taken over")
    joined = start(server, stream=True).until(begun)
    assert jobs(server) == [job]
    hub.released.set()
    assert named(answer.finish(), "complete")
    assert named(joined.finish(), "complete")
    assert left.finish().json()["status"] == "success"
    assert [file for file, _ in hub.transfers] == ["tiny-Q4_0.gguf", "mmproj-F16.gguf"]
    assert server.client.get(f"/v1/models/{NAME}").json()["downloaded"] is True


def continues(hub: Hub, server: LemonbusServer) -> None:
    """Pull again after a broken download: only the missing bytes are transferred, and the file is complete."""
    hub.hold_after = 0
    hub.released.set()
    hub.transfers.clear()
    answer = start(server, stream=True).finish()
    assert named(answer, "complete")
    assert hub.transfers[0][0] == "tiny-Q4_0.gguf"
    assert hub.transfers[0][1] > ENOUGH
    shown = server.client.get(f"/v1/models/{NAME}").json()
    assert shown["downloaded"] is True
    cached = list(Path(os.environ["HF_HOME"]).rglob("snapshots/*/tiny-Q4_0.gguf"))
    assert [path.read_bytes() for path in cached] == [MODEL]


def test_nothing_is_downloaded_for_a_backend_that_is_not_there(server: LemonbusServer) -> None:
    wanted = {"model_name": "SmolLM2-135M-Instruct-GGUF", "llamacpp_backend": "system"}
    answer = server.client.post("/v1/load", wanted)
    assert answer.error["code"] == "backend_not_installed"
    assert "llama-server was not found" in answer.error["message"]
    assert not jobs(server)
    assert server.client.get(f"/v1/models/{wanted['model_name']}").json()["downloaded"] is False


def test_a_pull_that_fails_says_why_and_leaves_nothing_registered_wrong(hub: Hub, server: LemonbusServer) -> None:
    hub.wrong_size = shutil.disk_usage(server.home).total
    answer = start(server, stream=True).finish()
    assert answer.status == 200
    (error,) = named(answer, "error")
    assert "not enough disk space" in error["error"]
    assert error["code"] == "insufficient_storage"
    whole = start(server).finish()
    assert whole.status == 507
    reported = whole.json()
    folder = str(Path(os.environ["HF_HOME"]).parent)
    detail = reported["error"].pop("detail")
    assert folder in detail, "for the administrator that a caller of a server without keys is"
    assert "bytes are missing" in detail
    assert folder not in json.dumps(reported)
    hub.wrong_size = 0
    assert start(server).finish().json()["status"] == "success"


def test_a_repository_that_the_hub_refuses_is_final(hub: Hub, server: LemonbusServer) -> None:
    hub.status = 403
    whole = start(server).finish()
    assert (whole.status, whole.error["code"]) == (403, "checkpoint_forbidden")
    assert "HF_TOKEN" in whole.error["message"]
    assert whole.headers["x-should-retry"] == "false"
    hub.status = 0
    assert start(server).finish().json()["status"] == "success"


def test_progress_of_two_files_has_their_index(hub: Hub, server: LemonbusServer) -> None:
    hub.rate = 150_000
    hub.repositories[REPOSITORY]["tiny-Q4_0.gguf"] = gguf(100)
    answer = start(server, stream=True).finish()
    assert named(answer, "progress")[-1]["file"] == "mmproj-F16.gguf"
    assert named(answer, "progress")[-1]["file_index"] == 2


CHAT = {"model": NAME, "messages": [{"role": "user", "content": "hi"}], "max_tokens": 1}
PROMPT = {"model": NAME, "prompt": "hi", "content": "hi", "input_prefix": "a", "input_suffix": "b"}
DOWNLOADING_REQUESTS: list[tuple[str, dict[str, Any]]] = [
    ("/v1/chat/completions", CHAT),
    ("/v1/chat/completions", {**CHAT, "stream": True}),
    ("/v1/completions", PROMPT),
    ("/v1/responses", {"model": NAME, "input": "hi"}),
    ("/v1/messages", CHAT),
    ("/v1/messages/count_tokens", CHAT),
    ("/api/v0/tokenize", PROMPT),
    ("/apply-template", CHAT),
    ("/completion", PROMPT),
    ("/infill", PROMPT),
    ("/api/generate", PROMPT),
    ("/api/chat", CHAT),
    ("/v1/pull", {"model_name": NAME}),
    ("/v1/load", {"model_name": NAME}),
    ("/api/models/pull", {"name": NAME, "model": NAME}),
    ("/api/models/load", {"name": NAME, "model": NAME}),
    ("/api/pull", {"model": NAME}),
]
FORBIDDEN_TYPES = dict.fromkeys(
    ["/v1/messages", "/v1/messages/count_tokens", "/apply-template", "/completion", "/infill"], "permission_error"
)
"""The word that Anthropic's and llama.cpp's APIs use."""
PAGE = {"Origin": "https://page.example"}


@pytest.mark.parametrize("foreign", [PAGE, {"Host": "rebound.example"}, {"X-Forwarded-For": "192.0.2.7"}])
def test_a_foreign_page_starts_no_download(hub: Hub, server: LemonbusServer, foreign: dict[str, str]) -> None:
    for path, body in DOWNLOADING_REQUESTS:
        answer = server.client.start("POST", path, body, foreign).finish()
        assert answer.status == 403, f"{path}: {answer.body!r}"
        reported = answer.json()["error"]
        if path == "/api/pull":
            reported = {**answer.json(), "message": reported}
        assert " may not " in reported["message"], path
        form = {"/v1/messages": ["type", "error", "request_id"], "/v1/chat/completions": ["status", "message", "error"]}
        assert list(answer.json()) == form.get(path, list(answer.json()))
        assert reported["type"] == FORBIDDEN_TYPES.get(path, "forbidden"), path
    assert not jobs(server)
    assert not hub.transfers


def test_a_foreign_page_gets_no_response_in_the_background_by_a_download(hub: Hub, server: LemonbusServer) -> None:
    body = {"model": NAME, "input": "hi", "background": True}
    refused = server.client.start("POST", "/v1/responses", body, PAGE).finish()
    assert (refused.status, refused.json()["error"]["code"]) == (403, "forbidden")
    assert "is not on this machine" in refused.json()["error"]["message"]
    assert not hub.transfers


def test_a_foreign_page_may_use_what_is_here(server: LemonbusServer) -> None:
    answer = server.client.start("POST", "/v1/chat/completions", {**CHAT, "model": "extra.tiny-chat"}, PAGE).finish()
    assert answer.status == 200
