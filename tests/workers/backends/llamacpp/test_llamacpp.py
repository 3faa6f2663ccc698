"""The llamacpp recipe: flags, command line, requests, and installed backends."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from hypothesis import strategies as st

from protocol.config.settings import Settings
from protocol.failures import Code, LemonbusError
from protocol.models.memory import HOST
from protocol.models.recipes import ModelSpec
from tests.support.accepted_share import accepted_share
from tests.support.models.tiny_models import tiny_models
from tests.workers.backends.llamacpp.requested_backend import made
from workers.backends.engine_facts import ModelFacts
from workers.backends.flag_table import FlagError
from workers.backends.llamacpp.backend import LlamaCppBackend
from workers.backends.llamacpp.command_line import prompt_cache_mebibytes
from workers.backends.llamacpp.flags import FLAGS, parse
from workers.backends.llamacpp.user_arguments import check_llamacpp_args
from workers.backends.registry import ARGUMENT_CHECKS

DOCUMENTED = ["-m", "--port", "--ctx-size", "-ngl", "--jinja", "--mmproj", "--embeddings", "--reranking"]


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


@pytest.mark.parametrize("args", ["-m x", "--host=::", "--model y", "--conv'ert"])
def test_arguments_of_another_engine(args: str) -> None:
    assert ARGUMENT_CHECKS["whispercpp_args"]("--convert -t 2") == ["--convert", "-t", "2"]
    with pytest.raises(LemonbusError) as raised:
        ARGUMENT_CHECKS["whispercpp_args"](args)
    assert raised.value.failure.param == "whispercpp_args"
