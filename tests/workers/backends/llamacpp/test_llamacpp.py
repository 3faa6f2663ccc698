"""The llamacpp recipe: flags, command line, requests, and installed backends."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import strategies as st

from protocol.config.settings import Settings
from protocol.failures import Code, LemonbusError
from protocol.models import installations
from protocol.models.installations import InstallationRecord
from protocol.models.memory import HOST
from protocol.models.recipes import ModelSpec
from tests.support.accepted_share import accepted_share
from tests.support.models.tiny_models import tiny_models
from workers.backends.engine_facts import ModelFacts
from workers.backends.flag_table import FlagError
from workers.backends.llamacpp import slot_files
from workers.backends.llamacpp.backend import LlamaCppBackend
from workers.backends.llamacpp.command_line import prompt_cache_mebibytes
from workers.backends.llamacpp.flags import FLAGS, parse
from workers.backends.llamacpp.requests.context_check import MAX_READ_BYTES
from workers.backends.llamacpp.user_arguments import check_llamacpp_args
from workers.backends.registry import ARGUMENT_CHECKS
from workers.backends.requests.generation_request import SHORT_BODY_BYTES, UNSTREAMED_MAX_TOKENS

DOCUMENTED = ["-m", "--port", "--ctx-size", "-ngl", "--jinja", "--mmproj", "--embeddings", "--reranking"]


def made(kind: str = "llm", backend: str = "cpu", home: str = "/home", **options: Any) -> LlamaCppBackend:
    spec = ModelSpec("user.a,b/c", "x", "llamacpp", backend, kind, "/models/x.gguf", options=options)
    return LlamaCppBackend(spec, Settings(cache_dir=home))


@pytest.mark.parametrize("flag", [*DOCUMENTED, *FLAGS.forbidden, "--ctx_size", "--ctx-size=4", "--n_gpu_layers"])
def test_flags_that_lemonbus_sets(flag: str) -> None:
    with pytest.raises(LemonbusError) as raised:
        check_llamacpp_args(f"-fa on {flag} 1")
    assert raised.value.failure.code == Code.INVALID_REQUEST
    assert raised.value.failure.param == "llamacpp_args"
    assert flag.split("=", maxsplit=1)[0].replace("_", "-") in raised.value.failure.message


@pytest.mark.parametrize(
    ("args", "words"),
    [
        ("", []),
        ("-np 2 -kvu", ["-np", "2", "-kvu"]),
        ("--flash-attn on --no-mmap", ["--flash-attn", "on", "--no-mmap"]),
        ("--no-context-shift --no-mmap", ["--no-context-shift", "--no-mmap"]),
        ('--chat-template "a b"', ["--chat-template", "a b"]),
    ],
)
def test_flags_that_users_may_set(args: str, words: list[str]) -> None:
    assert check_llamacpp_args(args) == words
    made(llamacpp_args=args).check()


@pytest.mark.parametrize("args", ["'open", "-np", "-np x", "-np 0", "-np 257", "--parallel -1", "a\0b"])
def test_invalid_arguments(args: str) -> None:
    with pytest.raises(LemonbusError):
        check_llamacpp_args(args)


def test_slots() -> None:
    assert made().slots == 4
    assert made(slots=0).slots == 4
    assert made(slots=2).slots == 2
    assert made(slots=2, llamacpp_args="-np 8").slots == 8
    assert made(llamacpp_args="-np 8 --parallel 3").slots == 3


@pytest.mark.parametrize(
    ("words", "problem"),
    [(["--nope"], "--nope"), (["-np"], "-np needs"), (["-np", "x"], "-np cannot be x"), (["-fa", "maybe"], "maybe")],
)
def test_our_server_is_strict(words: list[str], problem: str) -> None:
    with pytest.raises(FlagError, match=problem):
        parse(words)


SWITCHES = st.sampled_from(FLAGS.names(lambda flag: flag.target and flag.kind is None))
WORDS = st.sampled_from(FLAGS.names(lambda flag: flag.target)) | st.sampled_from(["1", "0.5"]) | st.text(max_size=4)


@accepted_share(0.1, words=st.lists(SWITCHES, min_size=1, max_size=3) | st.lists(WORDS, max_size=3))
def test_any_command_line_is_read_or_refused(words: list[str]) -> bool:
    try:
        return bool(parse(words))
    except FlagError:
        return False


def pair(command: list[str], flag: str) -> str:
    return command[command.index(flag) + 1]


def test_the_command_line() -> None:
    command = made(ctx_size=1000, threads=3).command(5)
    assert pair(command, "--ctx-size") == "4000"
    assert (pair(command, "-np"), pair(command, "-b"), pair(command, "-t")) == ("4", "64", "3")
    assert pair(command, "-a") == "user.a_b/c"
    assert pair(command, "--slot-save-path") == "/home/slots/user.a_b_c/"
    assert "-m" in command
    command = made(ctx_size=1000, llamacpp_args="-np 2 -kvu --slot-save-path /s --cache-ram 9").command(5)
    assert pair(command, "--ctx-size") == "2000"
    assert command.count("--slot-save-path") == command.count("--cache-ram") == 1
    assert command[-7:] == ["-np", "2", "-kvu", "--slot-save-path", "/s", "--cache-ram", "9"]
    backend = made(ctx_size=0)
    backend.model_facts = ModelFacts(0, 512)
    assert pair(backend.command(5), "--ctx-size") == "2048"
    assert "--embeddings" in made("embedding").command(5)
    assert "--reranking" in made("reranking").command(5)


def test_a_context_that_is_chosen_by_the_memory() -> None:
    """Until it is chosen, the model's own counts."""
    backend, encoder = made(ctx_size=-1), made("embedding", ctx_size=-1)
    backend.model_facts = ModelFacts(0, 512)
    encoder.model_facts = ModelFacts(0, 512, cached=False)
    assert pair(backend.command(5), "--ctx-size") == "2048"
    assert pair(encoder.command(5), "--ctx-size") == "8192"


def test_the_memory_of_a_context_that_is_to_be_chosen() -> None:
    path = str(tiny_models() / "models" / "tiny-chat.gguf")
    backends = [
        LlamaCppBackend(ModelSpec("x", "x", "llamacpp", "cpu", "llm", path, options=options), Settings())
        for options in ({"ctx_size": -1}, {"ctx_size": 1024})
    ]
    for backend in backends:
        backend.model_facts = backend.examine()
    chosen, given = (backend.memory() for backend in backends)
    assert (chosen.context, chosen.largest_context, chosen.slots) == (0, 32_768, 4)
    assert (given.context, given.largest_context, given.slots) == (1024, 0, 4)
    assert given.parts["cache"] == 1024 * 4 * 2 * 2 * 2 * 32
    assert chosen.need(1024)[HOST] >= given.need()[HOST]


@pytest.mark.parametrize(("slot_caches", "mebibytes"), [(0, 256), (1, 4), (100 << 20, 100), (1 << 40, 256)])
def test_the_memory_for_prompts_that_no_slot_has(slot_caches: int, mebibytes: int) -> None:
    assert prompt_cache_mebibytes(slot_caches) == mebibytes


def test_a_small_model_keeps_no_more_prompts_than_its_slots() -> None:
    backend = made(ctx_size=1000)
    backend.model_facts = ModelFacts(0, 0, 0, 25_000)
    assert pair(backend.command(5), "--cache-ram") == "96"


def test_a_model_whose_slots_take_no_memory_has_more_of_them() -> None:
    backend, given = made("embedding", ctx_size=0), made("embedding", ctx_size=0, slots=3)
    for each in (backend, given):
        each.model_facts = ModelFacts(0, 512, cached=False)
    assert (pair(backend.command(5), "-np"), pair(backend.command(5), "--ctx-size")) == ("16", "8192")
    assert (pair(given.command(5), "-np"), pair(given.command(5), "--ctx-size")) == ("3", "1536")


@pytest.mark.parametrize(
    ("model", "backend", "cached"),
    [("embed", "cpu", False), ("rerank", "cpu", False), ("chat", "cpu", True), ("embed", "system", True)],
)
def test_whose_slots_take_memory(model: str, backend: str, cached: bool) -> None:
    spec = msgspec.structs.replace(
        made("embedding", backend).spec, path=str(tiny_models() / f"models/tiny-{model}.gguf")
    )
    assert LlamaCppBackend(spec, Settings()).examine().cached == cached


def test_the_environment() -> None:
    inherited = {
        "PATH": "/bin",
        "LLAMA_ARG_PORT": "1",
        "LLAMA_API_KEY": "k",
        "LEMONBUS_API_KEY": "k",
        "PYTHONPATH": "p",
    }
    ours, system = made(), made(backend="system")
    always = {"PATH": "/dev/null", "CUDA_DEVICE_ORDER": "PCI_BUS_ID", "GOMP_SPINCOUNT": "300"}
    assert ours.environment(inherited) == {**always, "PYTHONPATH": "p", "LLAMA_API_KEY": ours.key}
    assert system.environment(inherited) == {**always, "LLAMA_API_KEY": system.key}
    assert len({ours.key, system.key, "k", ""}) == 4, "a random key for each engine"
    spec = msgspec.structs.replace(system.spec, env={"PATH": "/mine"})
    wrapped = LlamaCppBackend(spec, Settings(llama_server="/bin/true"))
    assert wrapped.environment(inherited)["PATH"] == "/mine", "the operator may say otherwise"


def test_a_missing_executable(tmp_path: Path) -> None:
    spec = ModelSpec("x", "x", "llamacpp", "system", "llm", "/models/x.gguf")
    with pytest.raises(LemonbusError) as raised:
        LlamaCppBackend(spec, Settings(llama_server=str(tmp_path / "no-such-server"))).check()
    assert "no-such-server" in raised.value.failure.message
    assert str(tmp_path) not in raised.value.failure.message


@pytest.mark.parametrize(
    ("endpoint", "stream", "body", "streamed", "weight"),
    [
        ("chat/completions", True, {}, True, 1),
        ("chat/completions", False, {}, True, 1),
        ("chat/completions", False, {"n": 3}, True, 3),
        ("chat/completions", False, {"logprobs": True}, False, 1),
        ("chat/completions", True, {"logprobs": True}, True, 1),
        ("completions", False, {"logprobs": 2, "prompt": "a"}, True, 1),
        ("completions", False, {"prompt": ["a", "b"], "n": 2}, True, 4),
        ("completions", False, {"prompt": [[1], [2, 3]]}, True, 2),
        ("completions", False, {"prompt": [1, 2, 3]}, True, 1),
        ("completions", False, {"prompt": []}, True, 1),
    ],
)
def test_requests(endpoint: str, stream: bool, body: dict[str, Any], streamed: bool, weight: int) -> None:
    request = made().request(endpoint, "", json.dumps({**body, "odd": 1.50}).encode(), stream)
    assert (request.streamed, request.weight, request.path) == (streamed, weight, f"/v1/{endpoint}")
    sent = json.loads(request.body)
    assert sent["odd"] == 1.5
    if streamed:
        assert sent["stream"] is True
        assert "return_progress" not in sent
        assert sent["stream_options"] == {"include_usage": True}


@pytest.mark.parametrize(
    ("body", "streamed"),
    [
        ({"prompt": "a", "max_tokens": 8}, False),
        ({"prompt": "a", "max_tokens": UNSTREAMED_MAX_TOKENS}, False),
        ({"prompt": "a", "max_tokens": UNSTREAMED_MAX_TOKENS + 1}, True),
        ({"prompt": "a", "max_tokens": 8, "n_predict": 999}, True),
        ({"prompt": "a", "max_tokens": -1}, True),
        ({"prompt": "a"}, True),
        ({"prompt": "a" * SHORT_BODY_BYTES, "max_tokens": 8}, True),
        ({"prompt": ["a", "b"], "max_tokens": 8}, True),
        ({"prompt": "a", "max_tokens": 8, "n": 2}, True),
    ],
)
def test_only_what_ends_at_once_is_asked_for_whole(body: dict[str, Any], streamed: bool) -> None:
    assert made().request("completions", "", json.dumps(body).encode(), False).streamed is streamed
    assert made().request("completions", "", json.dumps(body).encode(), True).streamed


def test_progress_is_asked_for_where_a_prompt_takes_time() -> None:
    request = made().request("completions", "", json.dumps({"prompt": "long " * 200}).encode(), False)
    assert json.loads(request.body)["return_progress"] is True


def test_usage_and_progress_for_a_client_that_asked_for_them() -> None:
    request = made().request(
        "completions", "", b'{"stream_options":{"include_usage":true},"return_progress":true}', True
    )
    assert (request.usage, request.progress) == (True, True)
    request = made().request("completions", "", b'{"stream_options":null}', True)
    assert (request.usage, request.progress) == (False, False)


@pytest.mark.parametrize("body", [b"[]", b"nonsense", b'{"stream_options":3}', b"[" * 100_000, b""])
def test_invalid_bodies(body: bytes) -> None:
    with pytest.raises(LemonbusError) as raised:
        made().request("completions", "", body, stream=False)
    assert raised.value.failure.http_status == 400


@pytest.mark.parametrize(
    ("query", "path"),
    [("GET", "/slots"), ("save/0", "/slots/0?action=save"), ("restore/3", "/slots/3?action=restore")],
)
def test_slots_requests(query: str, path: str) -> None:
    request = made().request("slots", query, b"", stream=False)
    assert (request.path, request.weight) == (path, 0)


@pytest.mark.parametrize(("query", "status"), [("erase/4", 404), ("burn/0", 400), ("save/x", 400), ("save/-1", 400)])
def test_invalid_slots(query: str, status: int) -> None:
    with pytest.raises(LemonbusError) as raised:
        made().request("slots", query, b"", stream=False)
    assert raised.value.failure.http_status == status


@pytest.mark.parametrize(
    ("limit", "value"), [("MAX_SAVED_FILES", 2), ("MAX_SAVED_BYTES", 8), ("MIN_FREE_BYTES", 2**62)]
)
def test_clients_do_not_fill_the_disk_with_saved_slots(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: str, value: int
) -> None:
    backend = made(llamacpp_args=f"--slot-save-path {tmp_path}")
    for name in ("one", "two"):
        (tmp_path / name).write_bytes(b"four")
    save = b'{"filename":"three"}'
    assert backend.request("slots", "save/0", save, stream=False).path == "/slots/0?action=save"
    monkeypatch.setattr(slot_files, limit, value)
    with pytest.raises(LemonbusError, match="administrator must remove") as raised:
        backend.request("slots", "save/0", save, stream=False)
    assert raised.value.failure.http_status == 409
    backend.request("slots", "restore/0", save, stream=False)
    backend.request("slots", "erase/0", b"", stream=False)


def test_a_saved_slot_that_is_replaced_needs_no_space(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    backend = made(llamacpp_args=f"--slot-save-path {tmp_path}")
    (tmp_path / "one").write_bytes(b"four")
    monkeypatch.setattr(slot_files, "MAX_SAVED_FILES", 1)
    backend.request("slots", "save/0", b'{"filename":"one"}', stream=False)
    with pytest.raises(LemonbusError):
        backend.request("slots", "save/0", b'{"filename":"two"}', stream=False)


def put(tmp_path: Path, backend: str, program: str = "") -> Path:
    folder = installations.backend_folder(str(tmp_path), "llamacpp", backend) / "b1-d1"
    (folder / installations.FILES_FOLDER).mkdir(parents=True)
    (folder / installations.RECORD_FILE).write_bytes(
        msgspec.json.encode(InstallationRecord("llamacpp", backend, "b1", "d1", program))
    )
    return folder


def test_what_was_installed_from_a_release(tmp_path: Path) -> None:
    backend = made(backend="vulkan", home=str(tmp_path))
    with pytest.raises(LemonbusError, match="lemonbus backends install llamacpp:vulkan") as raised:
        backend.check()
    assert raised.value.failure.code is Code.BACKEND_NOT_INSTALLED
    program = put(tmp_path, "vulkan", "bin/llama-server") / installations.FILES_FOLDER / "bin" / "llama-server"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\n")
    backend.check()
    words = backend.command(1)
    assert words[0] == str(program)
    assert words[words.index("-ngl") + 1] == "99"
    assert "-b" not in words
    kept = backend.environment({"PYTHONPATH": "p", "LD_LIBRARY_PATH": "/lib"})
    assert kept == {
        "LD_LIBRARY_PATH": f"{program.parent}:/lib",
        "GOMP_SPINCOUNT": "300",
        "LLAMA_API_KEY": backend.key,
        "PATH": "/dev/null",
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
    }


@pytest.mark.parametrize(
    ("options", "words"), [({"gpu_layers": 0}, ["-ngl", "0"]), ({"gpu_layers": 9}, ["-ngl", "9"]), ({}, [])]
)
def test_a_program_with_a_gpu_uses_it_unless_a_load_asks_for_fewer_layers(
    options: dict[str, int], words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "llama-server").write_text("#!/bin/sh\n")
    (tmp_path / "llama-server").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    command = made(backend="system", **options).command(1)
    assert [word for flag, word in itertools.pairwise(command) if "-ngl" in (flag, word)] == words


def test_wheels_in_a_folder_of_their_own(tmp_path: Path) -> None:
    folder = put(tmp_path, "cpu")
    backend = made(home=str(tmp_path))
    backend.check()
    assert backend.environment({})["PYTHONPATH"] == str(folder / installations.SITE_FOLDER)
    assert backend.environment({"PYTHONPATH": "p"})["PYTHONPATH"] == f"p:{folder / installations.SITE_FOLDER}"


@pytest.mark.parametrize("args", ["-m x", "--host=::", "--model y", "--conv'ert"])
def test_arguments_of_another_engine(args: str) -> None:
    assert ARGUMENT_CHECKS["whispercpp_args"]("--convert -t 2") == ["--convert", "-t", "2"]
    with pytest.raises(LemonbusError) as raised:
        ARGUMENT_CHECKS["whispercpp_args"](args)
    assert raised.value.failure.param == "whispercpp_args"


@pytest.mark.parametrize("field", ["input_prefix", "input_suffix", "input_extra"])
def test_a_text_to_fill_in_has_a_limit_of_its_own(field: str) -> None:
    """The engine uses only as much of it as its context can hold, but tokenizes all of it: with some vocabularies, 4 MiB took minutes."""
    text = "a" * MAX_READ_BYTES
    body = {"input_prefix": "", "input_suffix": "", field: [{"text": text}] if field == "input_extra" else text}
    with pytest.raises(LemonbusError, match="send less of it at once") as caught:
        made().request("infill", "", json.dumps(body).encode(), True)
    assert caught.value.failure.param == field
    made().request("infill", "", json.dumps({**body, field: ""}).encode(), True)
