"""POST /v1/load: the examples of the document, its options, its priorities, and everything it forbids."""

from __future__ import annotations

import json
import resource
from collections.abc import Iterator
from typing import Any

import pytest

from tests.compatibility.hub_server import CPU, HYBRID, QWEN, WHISPER_CHECKPOINT, HubServer
from tests.conftest import StartServer
from tests.support import processes
from tests.support.fakes.hub import Hub
from tests.support.models.genai_models import GENAI_TEXT
from tests.support.server import LemonbusServer

WHISPER = "whisper-large-v3-turbo-q8_0.bin"
CHAT, LOOP, BROKEN = "extra.tiny-chat", "extra.tiny-loop", "extra.broken"


@pytest.fixture(scope="module")
def server(module_hub_server: HubServer) -> Iterator[LemonbusServer]:
    """A server that also has a broken model."""
    broken = module_hub_server.server.models / "broken.gguf"
    broken.write_bytes(b"GGUF")
    yield module_hub_server.server
    broken.unlink()


@pytest.fixture(scope="module")
def configured_server(start_module_server: StartServer) -> LemonbusServer:
    """A server whose configuration has arguments for llama-server."""
    return start_module_server("tiny-chat", llamacpp_args="--no-mmap")


def load(server: LemonbusServer, body: dict[str, Any], prefix: str = "/v1") -> tuple[int, dict[str, Any]]:
    answer = server.client.post(f"{prefix}/load", body)
    return answer.status, answer.json()


def options_of(server: LemonbusServer, model: str) -> dict[str, Any]:
    """Return the options of the model in health."""
    found = [each for each in server.health()["all_models_loaded"] if each["model_name"] == model]
    return dict(found[0]["recipe_options"])


def saved(server: LemonbusServer) -> Any:
    path = server.home / "state" / "recipe_options.json"
    return json.loads(path.read_text()) if path.exists() else {}


def test_basic_load_installs_the_model_first(server: LemonbusServer, session_hub: Hub) -> None:
    server.client.post("/v1/delete", {"model_name": QWEN})
    session_hub.transfers.clear()
    for prefix in ("/v1", "/api/v1"):
        status, body = load(server, {"model_name": QWEN}, prefix)
        assert status == 200, body
        assert (body["status"], body["message"]) == ("success", f"Loaded model: {QWEN}")
        assert len(session_hub.transfers) == 1, "it was downloaded"
        assert server.health()["model_loaded"] == QWEN


def test_loading_a_loaded_model_is_a_use_of_it(server: LemonbusServer) -> None:
    """A load counts as use: the model is evicted last, and is the default for requests without a model."""
    for model in (QWEN, CHAT, QWEN):
        assert load(server, {"model_name": model})[0] == 200
        assert server.health()["model_loaded"] == model


def test_basic_load_of_an_onnx_model(server: LemonbusServer) -> None:
    status, body = load(server, {"model_name": CPU}, "/api/v1")
    assert (status, body["status"], body["message"]) == (200, "success", f"Loaded model: {CPU}")
    (shown,) = [each for each in server.health()["all_models_loaded"] if each["model_name"] == CPU]
    assert (shown["recipe"], shown["device"], shown["type"]) == ("oga-cpu", "cpu", "llm")
    assert server.health()["checkpoint_loaded"] == "amd/Qwen2.5-0.5B-Instruct-quantized_int4-float16-cpu-onnx"
    assert server.client.chat(CPU).text == GENAI_TEXT


def test_a_missing_npu(server: LemonbusServer) -> None:
    status, body = load(server, {"model_name": HYBRID, "device": "npu"})
    assert (status, body["error"]["code"]) == (501, "unsupported_operation"), body
    assert "oga-hybrid:hybrid cannot be used on this machine: Requires " in body["message"]


def test_custom_settings(server: LemonbusServer) -> None:
    body = {
        "model_name": QWEN,
        "ctx_size": 4096,
        "llamacpp_backend": "cpu",
        "llamacpp_args": "--flash-attn on --no-mmap",
    }
    status, answer = load(server, body)
    assert (status, answer["message"]) == (200, f"Loaded model: {QWEN}")
    assert options_of(server, QWEN).items() >= {key: body[key] for key in body if key != "model_name"}.items()


def test_saved_options_and_their_precedence(server: LemonbusServer) -> None:
    """The request takes precedence over what was saved, and that over the server's defaults.

    What was saved is replaced.
    """
    options = {"ctx_size": 1024, "llamacpp_backend": "cpu", "llamacpp_args": "--no-context-shift --no-mmap"}
    status, answer = load(server, {"model_name": QWEN, **options, "save_options": True})
    assert (status, answer["message"]) == (200, f"Loaded model: {QWEN}")
    assert saved(server)[QWEN] == options

    assert load(server, {"model_name": QWEN, "ctx_size": 2048})[0] == 200
    found = options_of(server, QWEN)
    assert (found["ctx_size"], found["llamacpp_args"]) == (2048, options["llamacpp_args"])
    assert saved(server)[QWEN] == options, "not asked to be saved"

    assert server.client.post("/v1/unload", {"model_name": QWEN}).status == 200
    assert server.client.chat(QWEN).status == 200, "a request loads it"
    assert options_of(server, QWEN).items() >= options.items()

    assert load(server, {"model_name": QWEN, "llamacpp_args": "--no-mmap", "save_options": True})[0] == 200
    assert saved(server)[QWEN] == {"llamacpp_args": "--no-mmap"}, "replaced, not merged"
    found = options_of(server, QWEN)
    assert (found["ctx_size"], found["llamacpp_args"]) == (server.settings.ctx_size, "--no-mmap"), (
        "the server's default again"
    )

    assert load(server, {"model_name": QWEN, "save_options": True})[0] == 200
    assert QWEN not in saved(server)
    assert "llamacpp_args" not in options_of(server, QWEN)


def test_the_same_options_keep_the_engine_and_others_load_it_again(server: LemonbusServer) -> None:
    assert load(server, {"model_name": CHAT, "ctx_size": 512})[0] == 200
    engine = server.engine_pid(CHAT)
    for same in ({"ctx_size": 512}, {}, {"pinned": False}):
        assert load(server, {"model_name": CHAT, **same})[0] == 200
        assert server.engine_pid(CHAT) == engine
    assert load(server, {"model_name": CHAT, "ctx_size": 1024})[0] == 200
    assert server.engine_pid(CHAT) != engine


def test_options_outlive_the_death_of_the_worker(server: LemonbusServer) -> None:
    assert load(server, {"model_name": CHAT, "ctx_size": 768})[0] == 200
    processes.kill(server.worker_pid(CHAT))
    assert server.client.chat(CHAT).status == 200
    assert options_of(server, CHAT)["ctx_size"] == 768


def test_running_requests_end_before_a_model_is_loaded_again(server: LemonbusServer) -> None:
    assert load(server, {"model_name": LOOP, "ctx_size": 1024})[0] == 200
    stream = server.client.start_chat(LOOP, stream=True, max_tokens=600)
    stream.until(lambda seen: seen.events)
    assert load(server, {"model_name": LOOP, "ctx_size": 2048})[0] == 200
    assert stream.finish().events[-1].data == "[DONE]"


def test_a_whisper_model(server: LemonbusServer) -> None:
    """The document's example on the backend that is here, and then on one that is not."""
    body = {"model_name": WHISPER, "whispercpp_backend": "cpu", "whispercpp_args": "--convert"}
    status, answer = load(server, body)
    assert (status, answer["message"]) == (200, f"Loaded model: {WHISPER}")
    assert (answer["checkpoint"], answer["recipe"]) == (WHISPER_CHECKPOINT, "whispercpp")
    assert options_of(server, WHISPER).items() >= {"whispercpp_backend": "cpu", "whispercpp_args": "--convert"}.items()
    status, answer = load(server, {**body, "whispercpp_backend": "npu"})
    assert (status, answer["error"]["code"]) == (501, "unsupported_operation")
    assert "whispercpp:npu cannot be used on this machine" in answer["message"]
    assert "`whispercpp_backend`" in answer["message"]
    assert options_of(server, WHISPER)["whispercpp_backend"] == "cpu", "it runs on"


LLAMACPP = ["-m", "--port", "--ctx-size", "-ngl", "--jinja", "--mmproj", "--embeddings", "--reranking"]
WHISPERCPP = ["-m", "--model", "--port"]
FORBIDDEN = [(QWEN, "llamacpp_args", flag) for flag in LLAMACPP]
FORBIDDEN += [(WHISPER, "whispercpp_args", flag) for flag in WHISPERCPP]


def test_models_show_what_is_saved_for_them(server: LemonbusServer) -> None:
    for options in ({"ctx_size": 640}, {}):
        assert load(server, {"model_name": CHAT, **options, "save_options": True})[0] == 200
        one = server.client.get(f"/v1/models/{CHAT}").json()
        (listed,) = [each for each in server.client.get("/v1/models").json()["data"] if each["id"] == CHAT]
        assert one["recipe_options"] == listed["recipe_options"] == options


def test_values_that_lemonades_app_sends_for_what_was_not_chosen_are_not_options(server: LemonbusServer) -> None:
    """The context is chosen: -1 is automatic."""
    body = {"model_name": CHAT, "ctx_size": -1, "threads": -1, "llamacpp_args": "", "llamacpp_backend": ""}
    status, answer = load(server, {**body, "save_options": True})
    assert (status, answer["status"]) == (200, "success")
    assert saved(server)[CHAT] == {"ctx_size": -1}


@pytest.mark.parametrize(
    ("merge_args", "without", "with_batch"),
    [(None, "--no-mmap", "-b 64"), (True, "--no-mmap", "--no-mmap -b 64"), (False, "", "-b 64")],
)
def test_arguments_of_a_load_replace_those_of_the_configuration_or_come_after_them(
    configured_server: LemonbusServer, merge_args: bool | None, without: str, with_batch: str
) -> None:
    for args, wanted in (({}, without), ({"llamacpp_args": "-b 64"}, with_batch)):
        status, answer = load(configured_server, {"model_name": CHAT, "merge_args": merge_args, **args})
        assert status == 200, answer
        assert options_of(configured_server, CHAT)["llamacpp_args"] == wanted
        assert configured_server.client.post("/v1/unload", {}).status == 200


@pytest.mark.parametrize("form", ["{} 1", "{}=1", "--verbose {} 1", "'{}' 1"])
@pytest.mark.parametrize(("model", "option", "flag"), FORBIDDEN)
def test_forbidden_flags_are_named(server: LemonbusServer, model: str, option: str, flag: str, form: str) -> None:
    status, body = load(server, {"model_name": model, option: form.format(flag)})
    assert (status, body["status"], body["error"]["type"]) == (400, "error", "invalid_request")
    assert f" {flag}" in body["message"]
    assert body["error"]["param"] == option
    assert body["error"]["message"] == body["message"]


@pytest.mark.parametrize(
    ("options", "param"),
    [
        ({"ctx_size": -2}, "ctx_size"),
        ({"merge_args": "yes"}, "merge_args"),
        ({"ctx_size": "8192"}, "ctx_size"),
        ({"ctx_size": 2**24 + 1}, "ctx_size"),
        ({"ctx_size": 0.5}, "ctx_size"),
        ({"llamacpp_backend": "vulcan"}, "llamacpp_backend"),
        ({"llamacpp_args": "--no-such-flag"}, "llamacpp_args"),
        ({"llamacpp_args": "'"}, "llamacpp_args"),
        ({"whispercpp_args": "--convert"}, "whispercpp_args"),
        ({"steps": 4}, "steps"),
        ({"context": 1}, "context"),
        ({"save_options": "yes"}, "save_options"),
        ({"device": "npu"}, "device"),
        ({"recipe": "oga-cpu"}, "recipe"),
        ({"recipe": "nonsense"}, "recipe"),
    ],
)
def test_wrong_options(server: LemonbusServer, options: dict[str, Any], param: str) -> None:
    before = saved(server)
    status, body = load(server, {"model_name": CHAT, "save_options": True, **options})
    assert (status, body["error"]["type"], body["error"]["param"]) == (400, "invalid_request", param)
    assert saved(server) == before


@pytest.mark.parametrize(
    ("options", "param"),
    [
        ({"steps": 0}, "steps"),
        ({"cfg_scale": "much"}, "cfg_scale"),
        ({"width": 1.5}, "width"),
        ({"height": -2}, "height"),
        ({"ctx_size": 1}, "ctx_size"),
    ],
)
def test_wrong_options_of_image_models(server: LemonbusServer, options: dict[str, Any], param: str) -> None:
    status, body = load(server, {"model_name": "sd-turbo", **options})
    assert (status, body["error"]["param"]) == (400, param)


def test_unknown_model(server: LemonbusServer) -> None:
    status, body = load(server, {"model_name": "No-Such-Model"})
    assert (status, body["status"], body["error"]["type"]) == (404, "error", "not_found")
    assert body["error"]["code"] == "model_not_found"
    assert "No-Such-Model" in body["message"]


def test_model_name_missing(server: LemonbusServer) -> None:
    status, body = load(server, {"ctx_size": 8192})
    assert (status, body["status"], body["error"]["type"]) == (400, "error", "invalid_request")
    assert body["error"]["param"] == "model_name"


def test_options_of_a_failed_load_are_not_saved(server: LemonbusServer) -> None:
    status, body = load(server, {"model_name": BROKEN, "ctx_size": 512, "save_options": True})
    assert status >= 400
    assert body["status"] == "error"
    assert str(server.models) not in body["message"]
    assert BROKEN not in saved(server)


def test_options_that_cannot_be_written_hold_until_the_model_is_unloaded(server: LemonbusServer) -> None:
    assert load(server, {"model_name": CHAT, "ctx_size": 640, "save_options": True})[0] == 200
    limits = resource.prlimit(server.supervisor_pid, resource.RLIMIT_FSIZE)
    resource.prlimit(server.supervisor_pid, resource.RLIMIT_FSIZE, (0, limits[1]))
    try:
        status, body = load(server, {"model_name": CHAT, "ctx_size": 768, "save_options": True})
    finally:
        resource.prlimit(server.supervisor_pid, resource.RLIMIT_FSIZE, limits)
    assert status == 500
    assert body["message"].startswith("the options could not be saved: File too large. ")
    assert (
        f"Model {CHAT} is loaded with these options until it is unloaded; later loads do not use them"
        in body["message"]
    )
    assert (options_of(server, CHAT)["ctx_size"], saved(server)[CHAT]) == (768, {"ctx_size": 640})
    server.client.post("/v1/unload", {"model_name": CHAT})
    assert load(server, {"model_name": CHAT})[0] == 200
    assert options_of(server, CHAT)["ctx_size"] == 640


def test_a_broken_options_file_is_moved_aside_and_loads_go_on(server: LemonbusServer) -> None:
    state = server.home / "state"
    state.mkdir(exist_ok=True)
    (state / "recipe_options.json").write_text("{broken")
    assert load(server, {"model_name": CHAT, "ctx_size": 640, "save_options": True})[0] == 200
    assert saved(server)[CHAT] == {"ctx_size": 640}
    assert [path.read_text() for path in state.glob("recipe_options.json.broken-*")] == ["{broken"]
