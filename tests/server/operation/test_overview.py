"""The overview of a real server, at one moment and as a stream: what a page shows is what happens."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.conftest import StartServer
from tests.fake_engines.generation.pauses_mid_stream import BEFORE
from tests.fake_engines.llama_server import program
from tests.faults.supervisors.recoveries import kill_supervisor
from tests.support import processes
from tests.support.clients.http_exchange import HttpExchange
from tests.support.clients.overview_follower import OverviewFollower
from tests.support.server import LemonbusServer
from tests.support.waiting import wait_for

PATH = "/internal/overview"
TOKENS = 6
PAUSING = "extra.tiny-loop"
MISSING = "extra.no-such-model"


@pytest.fixture(scope="module")
def module_server(start_module_server: StartServer, tmp_path_factory: pytest.TempPathFactory) -> LemonbusServer:
    """A server with one slot, whose engine waits in the middle of each answer."""
    engine = program(tmp_path_factory.mktemp("engine"), "pauses_mid_stream")
    return start_module_server("tiny-loop", slots=1, llamacpp_backend="system", llama_server=engine)


@pytest.fixture
def server(module_server: LemonbusServer) -> Iterator[LemonbusServer]:
    """The server of the module, with its model loaded and idle."""
    assert module_server.client.post("/v1/load", {"model": PAUSING}).status == 200
    yield module_server
    module_server.assert_idle()


def overview(server: LemonbusServer) -> Any:
    answer = server.client.get(PATH)
    assert answer.status == 200, answer
    return answer.json()


def start_answer(server: LemonbusServer, label: str) -> HttpExchange:
    return server.client.start_chat(PAUSING, {"X-Request-ID": label}, stream=True, max_tokens=TOKENS)


def finish_answers(server: LemonbusServer) -> None:
    """Let the engine go on with the answers that it has begun."""
    with processes.stopped(server.engine_pid(PAUSING)):
        pass


def request_of(state: Any, label: str) -> Any:
    """The request with this label, if it is in flight."""
    return next((each for each in state["requests"].values() if each["id"] == label), None)


def end_of(state: Any, label: str) -> Any:
    """The end of the request with this label, if it has ended."""
    return next((each for each in state["ended"].values() if each["id"] == label), None)


def test_the_stream_follows_requests_from_their_wait_to_their_end(server: LemonbusServer) -> None:
    with OverviewFollower(server.client) as page:
        assert page.state["access"] == {"admin": True, "key": "", "keys_needed": False}
        assert page.state["server"]["state"] == "ok"
        assert page.state["models"][PAUSING]["state"] == "ready"
        first = start_answer(server, "first")
        running = page.until(
            lambda state: (each := request_of(state, "first")) and each.get("tokens") == BEFORE and each
        )
        assert (running["state"], running["model"]) == ("running", PAUSING)
        assert (running["endpoint"], running["dialect"], running["stream"]) == ("chat/completions", "openai", True)
        assert running["arrived_at"] <= running["granted_at"] <= running["first_token_at"] <= page.state["time"]

        second = start_answer(server, "second")
        waiting = page.until(lambda state: request_of(state, "second"))
        assert (waiting["state"], waiting["position"]) == ("waiting", 1)
        assert (page.state["running"], page.state["waiting"]) == (1, 1)
        assert page.state["models"][PAUSING]["waiting"] == 1
        assert page.state["models"][PAUSING]["queue"][0]["requests"] == 1

        third = start_answer(server, "third")
        page.until(lambda state: request_of(state, "third"))
        third.hang_up()
        left = page.until(lambda state: end_of(state, "third"))
        assert (left["code"], left.get("key", "")) == ("cancelled", "")

        finish_answers(server)
        assert first.finish().done
        page.until(lambda state: (each := request_of(state, "second")) and each.get("tokens") == BEFORE)
        finish_answers(server)
        assert second.finish().done
        page.until(lambda state: end_of(state, "second") and not state["requests"] and not state["running"])
        whole = end_of(page.state, "first")
        assert (whole.get("code", ""), whole["model"], whole["output_tokens"]) == ("", PAUSING, TOKENS)
        assert whole["total_s"] >= whole["first_token_s"] > 0
        assert page.state["models"][PAUSING]["first_token_p50"] > 0
        assert server.client.chat(MISSING).status == 404
        refused = page.until(lambda state: next((e for e in state["ended"].values() if e["model"] == MISSING), None))
        assert (refused["code"], refused["status"]) == ("model_not_found", 404)
        assert MISSING in refused["message"]

        def agrees() -> bool:
            """Return whether both say the same: a second may pass between the two."""
            page.next_second()
            now = overview(server)
            changing = ("time", "memory", "disks")
            return all(page.state[name] == value for name, value in now.items() if name not in changing)

        wait_for(agrees, "the stream tells what the overview says")
    assert [event.name for event in page.events[:2]] == ["overview", "history"]
    assert {event.name for event in page.events[2:]} <= {"patch", "sample"}


def test_a_patch_of_an_idle_server_has_only_the_time_and_what_the_machine_does(server: LemonbusServer) -> None:
    with OverviewFollower(server.client) as page:
        for _ in range(3):
            page.next_second()
        quiet = page.named("patch")[-1]
    assert set(quiet) <= {"time", "memory", "disks"}


def test_samples_of_the_last_hour_come_first_and_new_ones_later(server: LemonbusServer) -> None:
    with OverviewFollower(server.client) as page:
        page.until(lambda _: page.named("sample"))
        (history,) = page.named("history")
        assert history["step_s"] == 10
        sample = page.named("sample")[0]
        assert sample["memory_used"]["host"] > 0
        assert all(each["at"] < sample["at"] for each in history["samples"])
        with OverviewFollower(server.client) as other:
            assert other.named("history")[0]["samples"][-1]["at"] >= sample["at"]


def test_a_supervisor_that_is_killed_does_not_end_the_stream_and_nothing_is_forgotten(server: LemonbusServer) -> None:
    running = start_answer(server, "survivor")
    with OverviewFollower(server.client) as page:
        page.until(lambda state: (each := request_of(state, "survivor")) and each.get("tokens"))
        page.until(lambda _: page.named("sample") or page.named("history")[0]["samples"])
        assert server.client.chat(MISSING).status == 404
        page.until(lambda state: any(each["model"] == MISSING for each in state["ended"].values()))
        before, pid = page.state, page.state["server"]["pid"]
        samples = len(page.named("history")[0]["samples"]) + len(page.named("sample"))
        kill_supervisor(server)
        after = page.until(lambda state: state["server"]["pid"] != pid and state)
        assert after["requests"].keys() == before["requests"].keys()
        survivor, former = request_of(after, "survivor"), request_of(before, "survivor")
        for field in ("id", "model", "endpoint", "dialect", "stream", "state"):
            assert survivor[field] == former[field], field
        assert abs(survivor["arrived_at"] - former["arrived_at"]) < 0.5
        page.until(lambda state: request_of(state, "survivor").get("tokens") == BEFORE)
        assert before["ended"].items() <= page.state["ended"].items(), "with their numbers"
        loaded_at = [state["models"][PAUSING]["loaded_at"] for state in (before, page.state)]
        assert abs(loaded_at[0] - loaded_at[1]) < 0.5
        started_at = [state["server"]["started_at"] for state in (before, page.state)]
        assert abs(started_at[0] - started_at[1]) <= 1.0, "each supervisor rounds to the second"
        with OverviewFollower(server.client) as other:
            assert len(other.named("history")[0]["samples"]) >= samples
    finish_answers(server)
    assert running.finish().done


def test_what_died_before_a_take_over_is_still_shown(server: LemonbusServer) -> None:
    processes.kill(server.engine_pid(PAUSING))
    wait_for(lambda: overview(server)["models"][PAUSING].get("deaths"), "the death is known")
    kill_supervisor(server)
    deaths = overview(server)["models"][PAUSING]["deaths"]
    assert deaths["count"] >= 1
    assert deaths["last"][0]["code"] == "backend_died"


def test_the_last_fifty_requests_that_ended_are_shown(server: LemonbusServer) -> None:
    with OverviewFollower(server.client) as page:
        for _ in range(60):
            assert server.client.chat(MISSING).status == 404
        last = server.client.start_chat(MISSING, {"X-Request-ID": "the-last"}).finish()
        assert last.status == 404
        page.until(lambda state: end_of(state, "the-last"))
        assert len(page.state["ended"]) == 50
        numbers = sorted(map(int, page.state["ended"]))
        assert numbers[-1] - numbers[0] == 49


def test_followers_are_limited_and_another_one_may_follow_when_one_has_left(start_server: StartServer) -> None:
    server = start_server("tiny-chat", api_key="user", admin_api_key="root")
    user, root = ({"Authorization": f"Bearer {key}"} for key in ("user", "root"))
    pages = [OverviewFollower(server.client, user).__enter__() for _ in range(8)]
    refused = server.client.get(PATH + "/stream", **user)
    assert (refused.status, refused.error["code"]) == (429, "rate_limit_exceeded")
    assert int(refused.headers["retry-after"]) >= 1
    with OverviewFollower(server.client, root) as page:
        assert page.state["access"] == {"admin": True, "key": "admin_api_key", "keys_needed": True}
    pages.pop().exchange.hang_up()

    def admitted() -> bool:
        """Return whether another page may follow: the server notices that one has left when it writes to it."""
        again = server.client.start("GET", PATH + "/stream", headers=user)
        again.until(lambda it: it.status)
        again.hang_up()
        return again.status == 200

    wait_for(admitted, "another one may follow")
    assert server.client.get(PATH).status == 401
    for page in pages:
        page.exchange.hang_up()


def test_a_server_that_ends_says_so_in_the_stream(start_server: StartServer) -> None:
    server = start_server("tiny-chat")
    with OverviewFollower(server.client) as page:
        assert server.client.post("/internal/drain", {}).status == 200
        page.until(lambda state: state["server"]["state"] == "drained")
        server.stop()
        last = page.finish()
    assert page.exchange.complete, "the response is whole"
    assert (last.name, last.json()["code"]) == ("error", "draining")


def test_a_head_request_follows_nothing(server: LemonbusServer) -> None:
    for path in (PATH, PATH + "/stream"):
        head = server.client.start("HEAD", path).finish()
        assert (head.status, head.body) == (200, b"")
