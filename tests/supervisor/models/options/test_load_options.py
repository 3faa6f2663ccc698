"""Load options: bounds, what is saved, and files that are broken."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import strategies as st

from protocol.config.settings import Settings
from protocol.failures import Code, Failure, LemonbusError
from protocol.models.recipes import RecipeDescriptor
from supervisor.models.options import load_options
from supervisor.models.options.load_options import ModelOptions
from tests.supervisor.models.model_files import replace_file
from tests.support.accepted_share import accepted_share
from workers.backends.registry import DESCRIPTORS

LLAMACPP = DESCRIPTORS["llamacpp"]


def descriptor_of(model: str) -> RecipeDescriptor:
    if model == "unknown":
        raise Failure(Code.MODEL_NOT_FOUND, "no").raised()
    return LLAMACPP


@pytest.fixture
def saved(tmp_path: Path) -> ModelOptions:
    return ModelOptions(tmp_path / load_options.FILE, descriptor_of)


@pytest.mark.parametrize(
    "given_options",
    [
        {},
        {"ctx_size": 0},
        {"ctx_size": 2**24, "slots": 256, "threads": 1},
        {"llamacpp_backend": "system"},
        {"llamacpp_backend": "default"},
        {"llamacpp_args": "-np 2 --no-mmap"},
        {"keep_prompt_cache": True},
        {"keep_prompt_cache": False},
    ],
)
def test_good_options_pass(given_options: dict[str, Any]) -> None:
    assert load_options.check(LLAMACPP, given_options) == given_options


@pytest.mark.parametrize(
    ("given_options", "param", "expected"),
    [
        ({"ctx_size": -1}, "ctx_size", "from 0"),
        ({"ctx_size": 2**24 + 1}, "ctx_size", "up to 16777216"),
        ({"ctx_size": "4096"}, "ctx_size", "a string"),
        ({"ctx_size": True}, "ctx_size", "a boolean"),
        ({"keep_prompt_cache": 1}, "keep_prompt_cache", "true or false, not a number"),
        ({"keep_prompt_cache": "true"}, "keep_prompt_cache", "true or false, not a string"),
        ({"ctx_size": 1.5}, "ctx_size", "not 1.5"),
        ({"ctx_size": 1e400}, "ctx_size", "not inf"),
        ({"ctx_size": None}, "ctx_size", "null"),
        ({"slots": 257}, "slots", "up to 256"),
        ({"threads": 999_999_999}, "threads", "up to 1024"),
        ({"threads": 10**400}, "threads", "up to 1024"),
        ({"ctx_size": -(10**400)}, "ctx_size", "from 0"),
        ({"temperature": 10**400}, "temperature", "not an option"),
        ({"llamacpp_args": "-b 4096 -ub 65537"}, "llamacpp_args", "-ub cannot be 65537; the largest number is 65536"),
        ({"llamacpp_backend": "vulcan"}, "llamacpp_backend", "cpu"),
        ({"llamacpp_args": 5}, "llamacpp_args", "a number"),
        ({"llamacpp_args": "--port 80"}, "llamacpp_args", "--port"),
        ({"llamacpp_args": "-m /etc/passwd"}, "llamacpp_args", "-m"),
        ({"llamacpp_args": "-tb 999999999"}, "llamacpp_args", "-tb cannot be 999999999; the largest number is 1024"),
        ({"llamacpp_args": "'"}, "llamacpp_args", "split"),
        ({"whispercpp_args": "x"}, "whispercpp_args", "not an option of recipe llamacpp"),
        ({"\ud800": 1}, "?", "not an option"),
    ],
)
def test_a_wrong_option_is_named(given_options: dict[str, Any], param: str, expected: str) -> None:
    with pytest.raises(LemonbusError) as raised:
        load_options.check(LLAMACPP, given_options)
    failure = raised.value.failure
    assert (failure.http_status, failure.param) == (400, param)
    assert expected in failure.message
    failure.message.encode()


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(), lambda inner: st.lists(inner, max_size=3)
)


VALID = st.dictionaries(st.sampled_from(["ctx_size", "slots", "threads"]), st.integers(0, 256), min_size=1, max_size=2)
ANY = st.dictionaries(st.sampled_from([option.name for option in LLAMACPP.options]), JSON, max_size=2)


@accepted_share(0.1, given_options=VALID | ANY)
def test_any_options_pass_or_are_the_callers_error(given_options: dict[str, Any]) -> bool:
    try:
        found = load_options.check(LLAMACPP, given_options)
    except LemonbusError as problem:
        assert problem.failure.code is Code.INVALID_REQUEST  # noqa: PT017 - either outcome is right
        return False
    return bool(found)


def test_the_administrators_arguments_may_be_others_than_a_clients(tmp_path: Path) -> None:
    load_options.check_settings(Settings(llamacpp_args="--lora /srv/a.gguf"))
    allowed = load_options.file_directories(Settings(extra_models_dir="/srv/extra", engine_file_dirs=["/srv/adapters"]))
    assert {"/srv/extra", "/srv/adapters"} < set(allowed)
    assert load_options.check(LLAMACPP, {"llamacpp_args": "--lora /srv/adapters/a.gguf"}, allowed)
    for args in ("--log-file /tmp/engine.log", "--lora /srv/a.gguf", "--chat-template-file /etc/passwd"):
        with pytest.raises(LemonbusError):
            load_options.check(LLAMACPP, {"llamacpp_args": args}, allowed)
    (tmp_path / load_options.FILE).write_text(json.dumps({"m": {"llamacpp_args": "--log-file /tmp/x", "threads": 2}}))
    saved = ModelOptions(tmp_path / load_options.FILE, descriptor_of, allowed)
    assert saved.of("m") == {"threads": 2}
    assert "--log-file cannot be sent with a load" in saved.problems[0]


def test_settings_give_the_defaults() -> None:
    found = load_options.defaults(LLAMACPP, Settings(ctx_size=512, llamacpp_backend="system"))
    assert (found["ctx_size"], found["llamacpp_backend"]) == (512, "system")
    assert "llamacpp_args" not in found


def test_what_is_saved_replaces_what_was_saved_and_others_stay(saved: ModelOptions, tmp_path: Path) -> None:
    path = tmp_path / load_options.FILE
    path.write_text(json.dumps({"other": {"unheard_of": 1}, "m": {"ctx_size": 1}}))
    saved.save("m", {"threads": 2})
    assert json.loads(path.read_text()) == {"other": {"unheard_of": 1}, "m": {"threads": 2}}
    assert saved.of("m") == {"threads": 2}
    saved.save("m", {})
    assert "m" not in json.loads(path.read_text())
    assert [item.name for item in tmp_path.iterdir()] == [load_options.FILE]


def test_an_edited_file_counts_at_the_next_load(saved: ModelOptions, tmp_path: Path) -> None:
    assert saved.of("m") == {}
    replace_file(tmp_path / load_options.FILE, b'{"m": {"ctx_size": 256}}')
    assert saved.of("m") == {"ctx_size": 256}


def test_wrong_options_are_not_saved(saved: ModelOptions, tmp_path: Path) -> None:
    for model, wrong in (("m", {"ctx_size": "x"}), ("unknown", {"ctx_size": 1})):
        with pytest.raises(LemonbusError):
            saved.save(model, wrong)
    assert not list(tmp_path.iterdir())


def test_a_wrong_option_in_the_file_is_left_out_alone(saved: ModelOptions, tmp_path: Path) -> None:
    (tmp_path / load_options.FILE).write_text('{"m": {"ctx_size": "big", "threads": 3}, "n": 5}')
    assert saved.of("m") == {"threads": 3}
    assert saved.of("n") == {}
    assert any("n: expected an object" in problem for problem in saved.problems)
    assert any("ctx_size must be a whole number" in problem for problem in saved.problems)


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"\xff\xfe", b'{"a":' * 5000])
def test_a_broken_file_is_moved_aside_and_kept(saved: ModelOptions, tmp_path: Path, content: bytes) -> None:
    path = tmp_path / load_options.FILE
    path.write_bytes(content)
    assert saved.of("m") == {}
    (aside,) = tmp_path.iterdir()
    assert aside.name.startswith(f"{load_options.FILE}.broken-")
    assert aside.read_bytes() == content
    assert aside.name in saved.problems[0]
    saved.save("m", {"threads": 1})
    assert saved.of("m") == {"threads": 1}


def test_the_error_of_a_file_that_cannot_be_written_has_no_path(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    saved = ModelOptions(tmp_path / "file" / load_options.FILE, descriptor_of)
    with pytest.raises(LemonbusError) as raised:
        saved.save("m", {"threads": 1})
    assert raised.value.failure.http_status == 500
    assert str(tmp_path) not in raised.value.failure.message
