"""A configuration with sections for models and recipes: each of their settings does what it says, for every API."""

from __future__ import annotations

from typing import Any

import psutil  # type: ignore[import-untyped]
import pytest

from tests.conftest import StartServer
from tests.support.clients.http_client import RawHttpClient
from tests.support.models.tiny_models import CHAT_TEXT, link_models, tiny_models
from tests.support.server import LemonbusServer
from tests.support.waiting import wait_for

LOOP, EMBED = "extra.tiny-loop", "extra.tiny-embed"
HI = [{"role": "user", "content": "Hi"}]
FIRST_WORD = CHAT_TEXT.split()[0]
LONG = "x" * 60_000
"""Prompts of three models with this length do not fit into the environment."""
BLOB, DIGEST = "llama3.2:1b", "sha256-" + "b" * 64
"""A model that is a file of another program, which gives it no suffix."""
MODELS: dict[str, Any] = {
    LOOP: {
        "aliases": ["gpt-4o", "loop:1b"],
        "preload": True,
        "options": {"ctx_size": 2048, "slots": 2},
        "args": "--cache-ram 16",
        "env": {"SECTION_OF_MODEL": "own value"},
        "devices": ["3", "GPU-12345678"],
        "set": {"max_tokens": 3},
        "drop": ["stop", "grammar"],
        "system_prompt": "Be brief.",
    },
    EMBED: {"options": {"ctx_size": 128}},
    "extra.tiny-infill": {"args": "--nonsense"},
    **{f"extra.tiny-{name}": {"system_prompt": LONG} for name in ("chat", "tale", "think")},
}
DEFAULTS = {"llamacpp": {"env": {"SECTION_OF_RECIPE": "1", "SECTION_OF_MODEL": "not this"}, "options": {"threads": 1}}}


@pytest.fixture(scope="module")
def server(start_module_server: StartServer, tmp_path_factory: pytest.TempPathFactory) -> LemonbusServer:
    blob = tmp_path_factory.mktemp("blobs") / DIGEST
    blob.symlink_to(tiny_models() / "models" / "tiny-chat.gguf")
    section = {"path": str(blob), "aliases": ["of-a-store"], "request_defaults": {"max_tokens": 2}}
    names = ("tiny-loop", "tiny-embed", "tiny-chat", "tiny-tale", "tiny-think")
    started = start_module_server(
        *names, models={**MODELS, BLOB: section}, defaults=DEFAULTS, groups={}, gateway_workers=1
    )
    started.wait_loaded(LOOP)  # by preload: no request has asked for it
    return started


@pytest.fixture
def client(server: LemonbusServer) -> RawHttpClient:
    return server.client


@pytest.mark.parametrize("name", ["gpt-4o", "loop:1b", "gpt-4o:latest", LOOP])
def test_aliases_mean_the_model(client: RawHttpClient, name: str) -> None:
    answer = client.post("/v1/chat/completions", {"model": name, "messages": HI}).json()
    assert (answer["model"], answer["usage"]["completion_tokens"]) == (name, 3)


def test_a_flag_that_turns_out_wrong_is_the_operators_error_and_not_the_clients(server: LemonbusServer) -> None:
    """The file appears after the start. Before, its recipe was unknown, and so was whether its section is right."""
    link_models(server.models, "tiny-infill")
    chat = {"model": "extra.tiny-infill", "messages": HI}
    answer = wait_for(
        lambda: (asked := server.client.post("/v1/chat/completions", chat)).status != 404 and asked, "the file is found"
    )
    assert (answer.status, answer.error["type"], answer.error["param"]) == (500, "model_error", None)
    assert (
        "its options in the server's configuration: llamacpp_args: unknown argument --nonsense"
        in answer.error["message"]
    )
    (failed,) = server.health()["lemonbus"]["troubled"]
    assert (failed["model_name"], failed["code"]) == ("extra.tiny-infill", "model_unusable")
    asked = server.client.post("/v1/load", {"model_name": "extra.tiny-infill", "llamacpp_args": "--no-mmap"})
    assert asked.status == 200, "a load with other options is as good as ever"
    wrong = server.client.post("/v1/load", {"model_name": EMBED, "llamacpp_args": "--cache-reuse x"})
    assert (wrong.status, wrong.error["param"]) == (400, "llamacpp_args")


def test_aliases_are_listed_and_shown(server: LemonbusServer) -> None:
    listed = {each["id"]: each.get("root") for each in server.client.get("/v1/models").json()["data"]}
    assert {name: listed[name] for name in ("gpt-4o", "loop:1b", LOOP)} == {"gpt-4o": LOOP, "loop:1b": LOOP, LOOP: None}
    tags = [each["name"] for each in server.client.get("/api/tags").json()["models"]]
    assert {"gpt-4o:latest", "loop:1b", f"{LOOP}:latest"} <= set(tags)
    for name in ("gpt-4o", "loop:1b"):
        assert server.client.get(f"/v1/models/{name}").json()["id"] == name
    assert server.client.post("/api/show", {"model": "gpt-4o:latest"}).json()["details"]["format"] == "gguf"
    assert server.client.get("/api/models/gpt-4o").json()["name"] == LOOP
    for name, pinned in (("loop:1b", True), ("gpt-4o", False)):
        answer = server.client.post("/v1/pin", {"model_name": name, "pinned": pinned})
        assert (answer.status, answer.json()["model_name"]) == (200, LOOP)


@pytest.mark.parametrize("limit", [{}, {"max_tokens": 9}, {"max_completion_tokens": 9}])
def test_a_field_that_is_set_wins_over_the_request(client: RawHttpClient, limit: dict[str, int]) -> None:
    body = {"model": LOOP, "messages": HI, **limit}
    assert client.post("/v1/chat/completions", body).json()["usage"]["completion_tokens"] == 3
    for path, prompt in (("/v1/completions", "Hi"), ("/completion", "Hi")):
        answer = client.post(path, {"model": LOOP, "prompt": prompt, **limit}).json()
        assert answer.get("tokens_predicted") or answer["usage"]["completion_tokens"] == 3


def test_a_set_field_applies_in_every_api(client: RawHttpClient) -> None:
    anthropic = client.post("/v1/messages", {"model": "gpt-4o", "max_tokens": 50, "messages": HI}).json()
    assert anthropic["usage"]["output_tokens"] == 3
    ollama = client.post(
        "/api/chat", {"model": "loop:1b", "stream": False, "messages": HI, "options": {"num_predict": 50}}
    )
    assert ollama.json()["eval_count"] == 3
    responses = client.post("/v1/responses", {"model": LOOP, "input": "Hi", "max_output_tokens": 50}).json()
    assert responses["usage"]["output_tokens"] == 3


def test_a_field_that_is_dropped_has_no_effect(client: RawHttpClient) -> None:
    body = {"model": LOOP, "messages": HI, "stop": [FIRST_WORD], "grammar": "none at all ("}
    answer = client.post("/v1/chat/completions", body)
    assert answer.status == 200
    assert FIRST_WORD in answer.json()["choices"][0]["message"]["content"]


def test_chats_without_a_system_message_get_the_prompt(client: RawHttpClient) -> None:
    prompt = client.post("/apply-template", {"model": LOOP, "messages": HI}).json()["prompt"]
    assert "Be brief." in prompt
    own = [{"role": "system", "content": "Be long."}, *HI]
    prompt = client.post("/apply-template", {"model": LOOP, "messages": own}).json()["prompt"]
    assert "Be long." in prompt
    assert "Be brief." not in prompt
    counted = client.post("/v1/messages/count_tokens", {"model": LOOP, "messages": HI}).json()["input_tokens"]
    used = client.post("/v1/chat/completions", {"model": LOOP, "messages": HI}).json()["usage"]["prompt_tokens"]
    assert counted == used


def test_the_engine_gets_options_arguments_variables_and_devices(server: LemonbusServer) -> None:
    loaded = next(each for each in server.health()["all_models_loaded"] if each["model_name"] == LOOP)
    command = loaded["launch_command"]
    words = command if isinstance(command, list) else command.split()
    assert words[words.index("-np") + 1] == "2"
    assert words[words.index("--ctx-size") + 1] == str(2 * 2048)
    assert words[words.index("--cache-ram") + 1] == "16"
    environment = psutil.Process(server.engine_pid(LOOP)).environ()
    assert environment["SECTION_OF_MODEL"] == "own value"
    assert environment["SECTION_OF_RECIPE"] == "1"
    assert environment["CUDA_VISIBLE_DEVICES"] == environment["HIP_VISIBLE_DEVICES"] == "3,GPU-12345678"
    assert "LEMONBUS_SETTINGS_FD" not in environment
    assert not [name for name in environment if name.startswith("LEMONBUS_")]


def test_a_loads_own_options_win_and_what_is_configured_is_shown(server: LemonbusServer) -> None:
    def shown(name: str) -> Any:
        answer = server.client.get(f"/internal/configuration?model={name}", **server.admin_headers)
        assert answer.status == 200
        return answer.json()

    assert server.client.post("/v1/load", {"model_name": EMBED, "ctx_size": 256}).status == 200
    embed = shown(EMBED)
    ctx_size = next(option for option in embed["options"] if option["name"] == "ctx_size")
    assert ctx_size == {"name": "ctx_size", "value": 128, "origin": f'models."{EMBED}"'}
    assert embed["loaded_options"]["ctx_size"] == 256
    assert "ctx_size" in [option["name"] for option in embed["known_options"]]
    assert [file["size"] > 0 for file in embed["files"]] == [True]
    loop = shown("gpt-4o")
    assert (loop["id"], loop["names"], loop["state"]) == (LOOP, ["gpt-4o", "loop:1b"], "ready")
    origins = {each["name"]: (each["value"], each["origin"]) for each in [*loop["options"], *loop["settings"]]}
    own = f'models."{LOOP}"'
    assert origins["llamacpp_args"] == ("--cache-ram 16", own)
    assert origins["threads"] == (1, "defaults.llamacpp")
    assert origins["set"] == ({"max_tokens": 3}, own)
    assert origins["env"] == (dict.fromkeys(["SECTION_OF_RECIPE", "SECTION_OF_MODEL"], "********"), own)


def test_a_file_anywhere_is_a_model_under_the_name_of_its_section(server: LemonbusServer) -> None:
    for name, asked, tokens in ((BLOB, {}, 2), ("of-a-store", {"max_tokens": 3}, 3)):
        answer = server.client.post("/v1/chat/completions", {"model": name, "messages": HI, **asked}).json()
        assert (answer["model"], answer["usage"]["completion_tokens"]) == (name, tokens)
    answer = server.client.post("/api/chat", {"model": BLOB, "messages": HI, "options": {"num_predict": 1}}).json()
    assert answer["eval_count"] == 1
    assert server.client.post("/v1/delete", {"model_name": BLOB}).status == 409
    assert BLOB in [each["id"] for each in server.client.get("/v1/models").json()["data"]]


def test_an_unknown_model_and_no_model(server: LemonbusServer) -> None:
    assert server.client.get("/internal/configuration?model=nothing.here").status == 404
    assert server.client.get("/internal/configuration").status == 400


def test_prompts_that_do_not_fit_into_the_environment_reach_the_engine(client: RawHttpClient) -> None:
    prompt = client.post("/apply-template", {"model": "extra.tiny-tale", "messages": HI}).json()["prompt"]
    assert LONG in prompt


def test_a_new_supervisor_has_the_same_sections(server: LemonbusServer) -> None:
    engine = server.engine_pid(LOOP)
    server.kill_supervisor()
    body = {"model": "loop:1b", "messages": HI, "max_tokens": 9}
    answer = server.client.post("/v1/chat/completions", body, patience=60.0).json()
    assert (answer["usage"]["completion_tokens"], server.engine_pid(LOOP)) == (3, engine)


def test_an_alias_of_the_configuration_is_not_deleted_with_its_model(client: RawHttpClient) -> None:
    answer = client.start("DELETE", "/api/delete", {"model": "gpt-4o"}).finish()
    assert answer.status == 409
    assert "remove it there" in answer.body.decode()
