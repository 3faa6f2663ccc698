"""Load options: bounds, and which engine arguments a client or the settings may have."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import strategies as st

from protocol.config.model_settings import RecipeDefaults
from protocol.config.settings import Settings
from protocol.failures import Code, LemonbusError
from supervisor.models.options import load_options
from supervisor.models.options.settings_check import check_settings
from tests.support.accepted_share import accepted_share
from workers.backends.registry import DESCRIPTORS

LLAMACPP = DESCRIPTORS["llamacpp"]


@pytest.mark.parametrize(
    "given_options",
    [
        {},
        {"ctx_size": 0},
        {"ctx_size": -1},
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


@pytest.mark.parametrize("recipe", ["llamacpp", "flm", "oga-cpu"])
def test_an_automatic_context_has_a_word(recipe: str) -> None:
    descriptor = DESCRIPTORS[recipe]
    assert load_options.check(descriptor, {"ctx_size": "auto"}) == {"ctx_size": -1}
    section = RecipeDefaults(options={"ctx_size": "auto"})
    assert not list(load_options.section_problems(descriptor, section))
    assert load_options.section_options(descriptor, section) == {"ctx_size": -1}


@pytest.mark.parametrize(
    ("given_options", "param", "expected"),
    [
        ({"ctx_size": -2}, "ctx_size", "from -1"),
        ({"ctx_size": 2**24 + 1}, "ctx_size", "up to 16777216"),
        ({"ctx_size": "4096"}, "ctx_size", 'a whole number or "auto", not a string'),
        ({"slots": "auto"}, "slots", "a whole number, not a string"),
        ({"ctx_size": True}, "ctx_size", "a boolean"),
        ({"keep_prompt_cache": 1}, "keep_prompt_cache", "true or false, not a number"),
        ({"keep_prompt_cache": "true"}, "keep_prompt_cache", "true or false, not a string"),
        ({"ctx_size": 1.5}, "ctx_size", "not 1.5"),
        ({"ctx_size": 1e400}, "ctx_size", "not inf"),
        ({"ctx_size": None}, "ctx_size", "null"),
        ({"slots": 257}, "slots", "up to 256"),
        ({"threads": 999_999_999}, "threads", "up to 1024"),
        ({"threads": 10**400}, "threads", "up to 1024"),
        ({"ctx_size": -(10**400)}, "ctx_size", "from -1"),
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


def test_the_administrators_arguments_may_be_others_than_a_clients() -> None:
    check_settings(Settings(llamacpp_args="--lora /srv/a.gguf"))
    allowed = load_options.file_directories(Settings(extra_models_dir="/srv/extra", engine_file_dirs=["/srv/adapters"]))
    assert {"/srv/extra", "/srv/adapters"} < set(allowed)
    assert load_options.check(LLAMACPP, {"llamacpp_args": "--lora /srv/adapters/a.gguf"}, allowed)
    for args in ("--log-file /tmp/engine.log", "--lora /srv/a.gguf", "--chat-template-file /etc/passwd"):
        with pytest.raises(LemonbusError):
            load_options.check(LLAMACPP, {"llamacpp_args": args}, allowed)


def test_settings_give_the_defaults() -> None:
    found = load_options.defaults(LLAMACPP, Settings(ctx_size=512, llamacpp_backend="system"))
    assert (found["ctx_size"], found["llamacpp_backend"]) == (512, "system")
    assert "llamacpp_args" not in found
