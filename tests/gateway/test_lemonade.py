"""models, load, unload, pull, health and stats: what the documents ask and show, and what is wrong with requests."""

from __future__ import annotations

import json
from array import array
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gateway.app import PREFIXES
from gateway.dialects.health import device_of, health_body, stats_body
from gateway.dialects.progress import INTERVAL, PING
from gateway.dialects.pulls import PullEvents
from protocol import admin, wire
from protocol.events import Outcome
from protocol.failures import Code, Failure
from protocol.recipes import ModelSpec
from tests.gateway.answering import Answering, Messages

OLD = ("/v0", "/api/v0")
CPU = admin.ModelEntry(
    "Qwen2.5-0.5B-Instruct-CPU", 1744173590, "amd/Qwen2.5-0.5B-cpu-onnx", "oga-cpu", "llm", True, labels=["hot", "cpu"]
)
ABSENT = admin.ModelEntry("Llama-3.2-1B-Hybrid", 1744173590, "amd/Llama-hybrid", "oga-hybrid", "llm", False, size=1.5)
UNKNOWN = Failure(Code.MODEL_NOT_FOUND, "no model is called No-Such-Model")


@pytest.fixture
def ask(tmp_path: Path) -> Answering:
    return Answering(tmp_path)


def is_error(result: Any, status: int, kind: str, param: str | None = None) -> dict[str, Any]:
    """Whether the body is the one error body; returns it."""
    body: dict[str, Any] = result.json
    assert result.status_code == status, body
    assert body["status"] == "error"
    assert body["message"] == body["error"]["message"]
    assert body["error"]["type"] == kind
    assert body["error"]["request_id"] == result.headers["X-Request-ID"]
    if param is not None:
        assert body["error"]["param"] == param
    return body


# models


@pytest.mark.parametrize("prefix", PREFIXES)
def test_models_lists_downloaded_ones_in_openais_form(ask: Answering, prefix: str) -> None:
    ask.reports[admin.ListModels] = [CPU]
    assert ask("GET", f"{prefix}/models").json == {
        "object": "list",
        "data": [
            {
                "id": "Qwen2.5-0.5B-Instruct-CPU",
                "created": 1744173590,
                "object": "model",
                "owned_by": "lemonade",
                "checkpoint": "amd/Qwen2.5-0.5B-cpu-onnx",
                "recipe": "oga-cpu",
                "device": "cpu",
                "dtype": "",
                "labels": ["hot", "cpu"],
            }
        ],
    }
    assert not ask.asked(admin.ListModels)[0].show_all


def test_show_all_adds_name_downloaded_and_size(ask: Answering) -> None:
    ask.reports[admin.ListModels] = [CPU, ABSENT]
    found = ask("GET", "/v1/models", params={"show_all": "true"}).json["data"]
    assert ask.asked(admin.ListModels)[0].show_all
    assert [(each["name"], each["downloaded"], each["size"]) for each in found] == [
        (CPU.id, True, 0.0),
        (ABSENT.id, False, 1.5),
    ]
    assert all(each["name"] == each["id"] for each in found)


@pytest.mark.parametrize(("given", "meant"), [("1", True), ("True", True), ("", True), ("false", False), ("0", False)])
def test_show_all_may_be_written_so(ask: Answering, given: str, meant: bool) -> None:
    ask.reports[admin.ListModels] = []
    assert ask("GET", f"/v1/models?show_all={given}").status_code == 200
    assert ask.asked(admin.ListModels)[0].show_all == meant


def test_show_all_may_not_be_written_otherwise(ask: Answering) -> None:
    is_error(ask("GET", "/v1/models?show_all=maybe"), 400, "invalid_request", "show_all")


@pytest.mark.parametrize("prefix", PREFIXES)
def test_a_model_may_have_slashes_in_its_id(ask: Answering, prefix: str) -> None:
    ask.reports[admin.GetModel] = CPU
    for path in ("owner/repo:Q4_K_M", "owner%2Frepo:Q4_K_M"):
        assert ask("GET", f"{prefix}/models/{path}").json["id"] == CPU.id
    assert {call.name for call in ask.asked(admin.GetModel)} == {"owner/repo:Q4_K_M"}


def test_an_unknown_model_is_not_found_in_the_documents_words(ask: Answering) -> None:
    ask.reports[admin.GetModel] = UNKNOWN
    body = is_error(ask("GET", "/api/v1/models/No-Such-Model"), 404, "not_found")
    assert body["error"]["message"] == "Model No-Such-Model has not been found"
    assert body["error"]["code"] == "model_not_found"


@pytest.mark.parametrize("prefix", PREFIXES)
def test_the_preview_also_lists_with_post(ask: Answering, prefix: str) -> None:
    ask.reports[admin.ListModels] = [CPU]
    result = ask("POST", f"{prefix}/models", {"cache_dir": str(Path(ask.house.settings.cache_dir) / "models")})
    if prefix in OLD:
        assert result.json["data"][0]["checkpoint"] == CPU.checkpoint
    else:
        is_error(result, 405, "invalid_request")
        assert "GET" in result.headers["Allow"]


@pytest.mark.parametrize("place", ["/etc", "/", "cache/../../elsewhere", "~root"])
def test_cache_dir_is_only_one_of_ours(ask: Answering, place: str) -> None:
    is_error(ask("GET", "/v0/models", params={"cache_dir": place}), 400, "invalid_request", "cache_dir")
    is_error(ask("POST", "/v0/load", {"model": "m", "cache_dir": place}), 400, "invalid_request", "cache_dir")
    assert not ask.line.sent


# load and unload

LOADED = admin.Loaded("Qwen3-0.6B-GGUF", "unsloth/Qwen3-0.6B-GGUF:Q4_0", "llamacpp")


@pytest.mark.parametrize("prefix", PREFIXES)
@pytest.mark.parametrize(
    ("body", "call"),
    [
        ({"model_name": "m"}, admin.LoadModel(0, "m")),
        ({"model": "m"}, admin.LoadModel(0, "m")),
        ({"model": "m", "model_name": "m"}, admin.LoadModel(0, "m")),
        (
            {"model": "owner/repo", "device": "Hybrid", "dtype": "int4", "recipe": "oga-cpu"},
            admin.LoadModel(0, "owner/repo", device="hybrid", recipe="oga-cpu"),
        ),
        (
            {"model_name": "m", "ctx_size": 8192, "llamacpp_backend": "cpu", "llamacpp_args": "--no-mmap"},
            admin.LoadModel(0, "m", {"ctx_size": 8192, "llamacpp_backend": "cpu", "llamacpp_args": "--no-mmap"}),
        ),
        (
            {"model_name": "m", "cfg_scale": 1.5, "steps": None, "save_options": True, "pinned": False},
            admin.LoadModel(0, "m", {"cfg_scale": 1.5}, save_options=True, pinned=False),
        ),
    ],
)
def test_load_takes_the_names_and_options_of_all_documents(
    ask: Answering, prefix: str, body: dict[str, Any], call: admin.LoadModel
) -> None:
    ask.reports[admin.LoadModel] = LOADED
    result = ask("POST", f"{prefix}/load", body)
    assert result.json == {
        "status": "success",
        "message": "Loaded model: Qwen3-0.6B-GGUF",
        "model_name": "Qwen3-0.6B-GGUF",
        "checkpoint": "unsloth/Qwen3-0.6B-GGUF:Q4_0",
        "recipe": "llamacpp",
    }
    (sent,) = ask.asked(admin.LoadModel)
    assert msgspec.structs.replace(sent, number=0) == call


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"ctx_size": 8192}, "model_name"),
        ({}, "model_name"),
        ({"model_name": ""}, "model_name"),
        ({"model_name": 5}, "model_name"),
        ({"model": ["m"]}, "model"),
        ({"model_name": "a", "model": "b"}, "model_name"),
        ({"model_name": "a\0b"}, "model_name"),
        ({"model_name": "a" * 5000}, "model_name"),
        ({"model": "m", "device": "toaster"}, "device"),
        ({"model": "m", "dtype": "int3"}, "dtype"),
        ({"model": "m", "save_options": "yes"}, "save_options"),
        ({"model": "m", "pinned": 1}, "pinned"),
        ({"model": "m", "ctx_size": True}, "ctx_size"),
        ({"model": "m", "ctx_size": [1]}, "ctx_size"),
        ({"model": "m", "ctx_size": 2**63}, "ctx_size"),
        ({"model": "m", "llamacpp_args": {"-m": 1}}, "llamacpp_args"),
    ],
)
def test_load_says_which_field_is_wrong(ask: Answering, body: dict[str, Any], param: str) -> None:
    is_error(ask("POST", "/v1/load", body), 400, "invalid_request", param)
    assert not ask.line.sent


def test_what_the_supervisor_says_of_an_option_reaches_the_client(ask: Answering) -> None:
    ask.reports[admin.LoadModel] = Failure(Code.INVALID_REQUEST, "--port is ours to set", param="llamacpp_args")
    body = is_error(ask("POST", "/v1/load", {"model": "m", "llamacpp_args": "--port 1"}), 400, "invalid_request")
    assert "--port" in body["message"]
    ask.reports[admin.LoadModel] = UNKNOWN
    assert is_error(ask("POST", "/v1/load", {"model": "x"}), 404, "not_found")["error"]["code"] == "model_not_found"


@pytest.mark.parametrize("prefix", PREFIXES)
def test_only_the_preview_acts_on_get_and_nobody_on_head(ask: Answering, prefix: str) -> None:
    ask.reports.update({admin.LoadModel: LOADED, admin.UnloadModel: ["m"]})
    results = [ask("GET", f"{prefix}/load", {"model": "m"}), ask("GET", f"{prefix}/unload")]
    if prefix in OLD:
        assert [result.status_code for result in results] == [200, 200]
        assert ask("GET", f"{prefix}/load?model=m").status_code == 200
        assert [call.model for call in ask.asked(admin.LoadModel)] == ["m", "m"]
        assert ask("GET", f"{prefix}/unload?model_name=m").status_code == 200
        assert [call.model for call in ask.asked(admin.UnloadModel)] == ["", "m"]
    else:
        for result in results:
            is_error(result, 405, "invalid_request")
    before = len(ask.line.sent)
    for verb in ("load", "unload"):
        assert ask("HEAD", f"{prefix}/{verb}?model=m").status_code == 405
    assert len(ask.line.sent) == before


@pytest.mark.parametrize("prefix", PREFIXES)
@pytest.mark.parametrize(
    ("body", "name"), [(None, ""), ({}, ""), ({"model_name": None}, ""), ({"model_name": "m"}, "m")]
)
def test_unload_takes_one_model_or_all(ask: Answering, prefix: str, body: Any, name: str) -> None:
    ask.reports[admin.UnloadModel] = ["m"]
    result = ask("POST", f"{prefix}/unload", body)
    assert result.json | {"status": "success", "message": "Model unloaded successfully"} == result.json
    assert [call.model for call in ask.asked(admin.UnloadModel)] == [name]


@pytest.mark.parametrize("code", [Code.NOT_LOADED, Code.MODEL_NOT_FOUND])
def test_unloading_what_is_not_loaded_is_404_with_the_documents_body(ask: Answering, code: Code) -> None:
    ask.reports[admin.UnloadModel] = Failure(code, "whatever the supervisor calls it")
    body = is_error(ask("POST", "/v1/unload", {"model_name": "Qwen3-0.6B-GGUF"}), 404, "not_found")
    assert body["message"] == "Model not found: Qwen3-0.6B-GGUF"
    assert body["error"]["code"] == "model_not_found"


@pytest.mark.parametrize(
    "body",
    [
        b"{",
        b"[]",
        b"null",
        b'{"model_name": }',
        b"\xff",
        b'{"model_name": ""}',
        b'{"model": 5}',
        b'{"modelname": "m"}',
        b'{"model_name": "a", "model": "b"}',
    ],
)
def test_a_malformed_unload_unloads_nothing(ask: Answering, body: bytes) -> None:
    is_error(ask("POST", "/v1/unload", body), 400, "invalid_request")
    assert not ask.line.sent


# pull


def progress(done: int, total: int = 100, index: int = 1, of: int = 2) -> admin.Progress:
    return admin.Progress(0, "m", f"file{index}.gguf", index, of, done, total)


def events_of(text: str) -> list[tuple[str, dict[str, Any]]]:
    """The events of a stream; comments are left out."""
    found = []
    for block in text.split("\n\n"):
        if block and not block.startswith(":"):
            first, second = block.split("\n")
            found.append((first.removeprefix("event: "), json.loads(second.removeprefix("data: "))))
    return found


@pytest.mark.parametrize("prefix", PREFIXES)
def test_pull_answers_when_the_model_is_there(ask: Answering, prefix: str) -> None:
    ask.reports[admin.PullModel] = admin.Pulled("m", 2)
    result = ask("POST", f"{prefix}/pull", {"model_name": "m"})
    assert result.json == {"status": "success", "message": "Installed model: m", "model_name": "m"}
    assert not ask.asked(admin.PullModel)[0].progress


@pytest.mark.parametrize("stream", [True, False])
def test_pull_hands_a_registration_on(ask: Answering, stream: bool) -> None:
    ask.reports[admin.PullModel] = admin.Pulled("user.x")
    said = {"checkpoint": "a/b:Q4", "recipe": "llamacpp", "mmproj": "m.gguf"}
    switches = {"embedding": True, "vision": True, "reasoning": False, "reranking": None}
    body = {"model_name": "user.x", **said, **switches, "stream": stream}
    assert ask("POST", "/v1/pull", body).status_code == 200
    (call,) = ask.asked(admin.PullModel)
    assert call.progress is stream
    assert call.registration == admin.Registration("a/b:Q4", "llamacpp", "m.gguf", ["vision", "embeddings"])


def test_delete_says_what_it_did(ask: Answering) -> None:
    ask.reports[admin.DeleteModel] = admin.Deleted("m", 2, ["user.n"])
    body = ask("POST", "/v1/delete", {"model_name": "m"}).json
    assert body.items() >= {"status": "success", "message": "Deleted model: m", "model_name": "m"}.items()
    assert (body["files_removed"], body["kept_for"]) == (2, ["user.n"])
    is_error(ask("POST", "/v1/delete", {}), 400, "invalid_request")


@pytest.mark.parametrize(
    ("body", "status", "kind"),
    [
        ({}, 400, "invalid_request"),
        ({"model_name": "m", "stream": "yes"}, 400, "invalid_request"),
        ({"model_name": "x", "checkpoint": "a/b:Q4", "recipe": "llamacpp"}, 400, "invalid_request"),
        ({"model_name": "user.x", "checkpoint": "a/b:Q4"}, 400, "invalid_request"),
        ({"model_name": "user.x", "recipe": "llamacpp"}, 400, "invalid_request"),
        ({"model_name": "user.x", "mmproj": "m.gguf"}, 400, "invalid_request"),
        ({"model_name": "user.x", "checkpoint": "a/b:Q4", "recipe": "llamacpp", "vision": 1}, 400, "invalid_request"),
    ],
)
def test_pull_says_what_it_does_not_take(ask: Answering, body: dict[str, Any], status: int, kind: str) -> None:
    is_error(ask("POST", "/v1/pull", body), status, kind)
    assert not ask.line.sent


def test_a_streamed_pull_has_the_documents_events(ask: Answering) -> None:
    ask.reports[admin.PullModel] = Messages([progress(40), admin.Pulled("m", 2)])
    result = ask("POST", "/v1/pull", {"model_name": "m", "stream": True})
    assert result.headers["Content-Type"].startswith("text/event-stream")
    assert events_of(result.text) == [
        (
            "progress",
            {
                "file": "file1.gguf",
                "file_index": 1,
                "total_files": 2,
                "bytes_downloaded": 40,
                "bytes_total": 100,
                "percent": 40,
            },
        ),
        ("complete", {"file_index": 2, "total_files": 2, "percent": 100}),
    ]
    assert ask.asked(admin.PullModel)[0].progress


@pytest.mark.parametrize("before", [[], [progress(1)]])
def test_a_download_that_fails_ends_the_stream_with_an_error_event(ask: Answering, before: list[Any]) -> None:
    broken = Failure(Code.DOWNLOAD_FAILED, "the hub has no such checkpoint")
    ask.reports[admin.PullModel] = Messages([*before, broken])
    result = ask("POST", "/v1/pull", {"model_name": "m", "stream": True}, headers={"X-Request-ID": "r1"})
    assert result.status_code == 200
    name, data = events_of(result.text)[-1]
    assert (name, data) == (
        "error",
        {"error": "the hub has no such checkpoint", "code": "download_failed", "request_id": "r1"},
    )
    assert "complete" not in result.text


def test_an_unknown_name_has_a_status_even_if_a_stream_was_asked_for(ask: Answering) -> None:
    ask.reports[admin.PullModel] = UNKNOWN
    is_error(ask("POST", "/v1/pull", {"model_name": "x", "stream": True}), 404, "not_found")


class Script:
    """A follower to whom things happen at given seconds."""

    def __init__(self, *happenings: tuple[float, Any]) -> None:
        self.now = 0.0
        self.report = wire.pack(admin.Pulled("m", 1))
        self.closed = 0
        self._left = list(happenings)

    def clock(self) -> float:
        return self.now

    def next(self, seconds: float) -> Any:
        when, what = self._left[0]
        if when > self.now + seconds:
            self.now += seconds
            return None
        self._left.pop(0)
        self.now = max(self.now, when)
        if isinstance(what, Failure):
            raise what.raised()
        return what

    def close(self) -> None:
        self.closed += 1


def played(*happenings: tuple[float, Any], silence: float = 5.0) -> list[tuple[float, bytes]]:
    follower = Script(*happenings)
    stream = PullEvents(follower, follower.next(silence), "r1", silence, follower.clock)  # type: ignore[arg-type]
    return [(follower.now, piece) for piece in stream]


def test_progress_is_told_ten_times_a_second_at_most_and_never_stale() -> None:
    told = played(*[(step / 100, progress(step)) for step in range(1, 301)], (3.005, admin.Answer(1)))
    assert told[-1][1].startswith(b"event: complete")
    seconds = [when for when, piece in told]
    for start in seconds:
        assert sum(start <= when < start + 1 for when in seconds) <= 10
    assert b'"percent":100' in told[-1][1]
    assert json.loads(told[-2][1].partition(b"data: ")[2])["bytes_downloaded"] == 300


def test_a_held_progress_is_told_as_soon_as_it_may() -> None:
    told = played((0.0, progress(1)), (0.01, progress(2)), (9.0, admin.Answer(1)))
    assert [when for when, piece in told if b"progress" in piece] == [0.0, INTERVAL]


def test_silence_is_bridged_with_comments() -> None:
    told = played((12.0, admin.Answer(1)))
    assert [piece for _, piece in told[:-1]] == [PING, PING]


def test_nothing_is_written_to_a_client_that_hung_up() -> None:
    assert played((0.0, progress(1)), (0.2, Failure(Code.CANCELLED, "the client hung up")))[1:] == []


def test_closing_the_stream_closes_the_follower_even_before_its_first_event() -> None:
    follower = Script((0.0, progress(1)))
    PullEvents(follower, None, "r1", 5.0, follower.clock).close()  # type: ignore[arg-type]
    assert follower.closed == 1


# health and stats


def spec(name: str, recipe: str = "llamacpp", backend: str = "cpu", **more: Any) -> ModelSpec:
    return ModelSpec(name, f"owner/{name}", recipe, backend, "llm", "/secret/model.gguf", **more)


def running(name: str, last_use: float, state: str = "ready", **more: Any) -> admin.RunningModel:
    return admin.RunningModel(spec(name, options={"ctx_size": 4096}), f"w-{name}", state, 11, last_use, **more)


HEALTH = admin.Health(
    status="ok",
    version="1.2.3",
    boot="b",
    pid=7,
    uptime=12.3456,
    models=[
        running("old", 100.5, backend_url="http://127.0.0.1:8001", slots=4, granted=2, queued=1, load_seconds=0.25),
        running("new", 200.5, "draining", backend_url="http://127.0.0.1:8002/v1"),
        running("coming", 300.5, "loading"),
    ],
    max_models={"llm": 4, "embedding": 3, "reranking": 2, "audio": 1, "image": 1, "tts": 1},
    granted=2,
    queued=1,
    troubled=[admin.TroubledModel("bad", Failure(Code.LOAD_FAILED, "it did not load", detail="SIGILL"), 3, 7.5)],
    downloads=["m"],
    peers=[admin.Peer("worker", "w1", 11)],
    counters={"evictions": 2},
)


@pytest.mark.parametrize("prefix", PREFIXES)
def test_health_has_the_fields_of_all_documents(ask: Answering, prefix: str) -> None:
    ask.reports[admin.GetHealth] = HEALTH
    body = ask("GET", f"{prefix}/health").json
    assert (body["status"], body["version"], body["websocket_port"]) == ("ok", "1.2.3", 13305)
    assert (body["model_loaded"], body["checkpoint_loaded"]) == ("new", "owner/new")
    assert body["max_models"] == {
        "llm": 4,
        "embedding": 3,
        "reranking": 2,
        "audio": 1,
        "transcription": 1,
        "image": 1,
        "tts": 1,
    }
    assert body["all_models_loaded"] == [
        {
            "model_name": name,
            "checkpoint": f"owner/{name}",
            "last_use": last_use,
            "type": "llm",
            "device": "cpu",
            "recipe": "llamacpp",
            "recipe_options": {"ctx_size": 4096},
            "backend_url": url,
        }
        for name, last_use, url in [
            ("old", 100.5, "http://127.0.0.1:8001/v1"),
            ("new", 200.5, "http://127.0.0.1:8002/v1"),
        ]
    ]
    assert "secret" not in json.dumps(body)


def test_health_says_more_to_those_who_run_the_house() -> None:
    ours = msgspec.to_builtins(health_body(HEALTH, 1)["lemonbus"])
    assert ours["state"] == "ok"
    assert [(model["model_name"], model["state"]) for model in ours["models"]] == [
        ("old", "ready"),
        ("new", "draining"),
        ("coming", "loading"),
    ]
    assert ours["models"][0] | {"granted": 2, "queued": 1, "slots": 4, "load_seconds": 0.25} == ours["models"][0]
    assert ours["troubled"] == [
        {
            "model_name": "bad",
            "code": "load_failed",
            "reason": "it did not load",
            "detail": "SIGILL",
            "failures": 3,
            "retry_in_seconds": 7.5,
        }
    ]
    assert (ours["downloads"], ours["counters"]) == (["m"], {"evictions": 2})


def test_health_of_an_empty_house(ask: Answering) -> None:
    ask.reports[admin.GetHealth] = msgspec.structs.replace(HEALTH, models=[], max_models={})
    body = ask("GET", "/v1/health").json
    assert body["status"] == "ok"
    assert body["model_loaded"] is None
    assert body["all_models_loaded"] == []
    assert set(body["max_models"].values()) == {0}


def test_the_websocket_port_is_the_one_that_was_found_if_none_was_chosen(tmp_path: Path) -> None:
    ask = Answering(tmp_path, port=0)
    ask.reports[admin.GetHealth] = HEALTH
    assert ask("GET", "/v1/health", port=8123).json["websocket_port"] == 8123


@pytest.mark.parametrize(
    ("recipe", "backend", "device"),
    [
        ("llamacpp", "cpu", "cpu"),
        ("llamacpp", "system", "cpu"),
        ("llamacpp", "vulkan", "gpu"),
        ("whispercpp", "npu", "npu"),
        ("flm", "default", "npu"),
        ("oga-hybrid", "default", "gpu npu"),
        ("ryzenai-llm", "hybrid", "gpu npu"),
        ("ryzenai-llm", "npu", "npu"),
        ("oga-cpu", "", "cpu"),
    ],
)
def test_devices_are_words_with_spaces_between(recipe: str, backend: str, device: str) -> None:
    assert device_of(recipe, backend) == device


@pytest.mark.parametrize("prefix", PREFIXES)
def test_stats_tells_processed_and_all_prompt_tokens(ask: Answering, prefix: str) -> None:
    times = array("f", [0.01, 0.02, 0.03, 0.04, 0.05]).tobytes()
    outcome = Outcome(137, 9, 5, 2.14, 0.25, 2.5, times)
    ask.reports[admin.GetStats] = admin.Stats("m", outcome)
    assert ask("GET", f"{prefix}/stats").json == {
        "time_to_first_token": 2.14,
        "tokens_per_second": 20.0,
        "input_tokens": 128,
        "output_tokens": 5,
        "decode_token_times": [0.01, 0.02, 0.03, 0.04, 0.05],
        "prompt_tokens": 137,
        "model": "m",
        "total_seconds": 2.5,
    }


def test_stats_of_one_model_and_of_none(ask: Answering) -> None:
    ask.reports[admin.GetStats] = admin.Stats()
    body = ask("GET", "/v1/stats?model=m").json
    assert ask.asked(admin.GetStats)[0].model == "m"
    assert body == stats_body(admin.Stats())
    assert (body["tokens_per_second"], body["decode_token_times"], body["model"]) == (0.0, [], None)


# what all share


def test_live_is_only_at_the_root_and_asks_nobody(ask: Answering) -> None:
    assert ask("GET", "/live").text == '{"status":"ok"}'
    head = ask("HEAD", "/live")
    assert (head.status_code, head.text) == (200, "")
    for prefix in PREFIXES:
        is_error(ask("GET", f"{prefix}/live"), 404, "not_found")
    assert not ask.line.sent


@pytest.mark.parametrize("route", ["models", "models/x", "health", "stats"])
def test_get_routes_answer_head(ask: Answering, route: str) -> None:
    ask.reports.update(
        {
            admin.ListModels: [CPU],
            admin.GetModel: CPU,
            admin.GetHealth: HEALTH,
            admin.GetStats: admin.Stats(),
        }
    )
    result = ask("HEAD", f"/v1/{route}")
    assert (result.status_code, result.text) == (200, "")


@pytest.mark.parametrize("route", ["load", "unload", "pull"])
def test_a_foreign_page_may_not_change_the_server(ask: Answering, route: str) -> None:
    result = ask("POST", f"/v1/{route}", {"model_name": "m"}, headers={"Origin": "http://evil.example"})
    is_error(result, 403, "forbidden")
    assert not ask.line.sent


def test_a_supervisor_that_refuses_for_now_says_when_to_come_back(ask: Answering) -> None:
    ask.reports[admin.LoadModel] = Failure(Code.BACKING_OFF, "it failed three times", model="m", retry_after=7.2)
    result = ask("POST", "/v1/load", {"model": "m"})
    is_error(result, 503, "model_error")
    assert result.headers["Retry-After"] == "8"
