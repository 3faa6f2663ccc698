"""Keys and values of the configuration as people type them."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.cli.setting_words import setting_path, setting_value

MODEL = 'models."Qwen3-0.6B"'


@pytest.mark.parametrize(
    ("key", "words", "value"),
    [
        ("port", ["8080"], 8080),
        ("port", ["many"], "many"),
        ("host", ["127.0.0.1"], "127.0.0.1"),
        ("api_key", ["12345"], "12345"),
        ("log_level", ["debug"], "debug"),
        ("ctx_size", ["auto"], "auto"),
        ("ctx_size", ["-1"], -1),
        ("grace", ["2.5"], 2.5),
        ("memory_reserve", ["2_000_000_000"], 2_000_000_000),
        ("allow_remote", ["yes"], True),
        ("allow_remote", ["0"], False),
        ("allow_remote", ["perhaps"], "perhaps"),
        ("allowed_hosts", ["a.example, b.example"], ["a.example", "b.example"]),
        ("allowed_hosts", ["a.example", "b.example"], ["a.example", "b.example"]),
        ("allowed_hosts", ['["a.example"]'], ["a.example"]),
        ("allowed_hosts", [""], []),
        (f"{MODEL}.ttl", ["300"], 300),
        (f"{MODEL}.pin", ["on"], True),
        (f"{MODEL}.type", ["llm"], "llm"),
        (f"{MODEL}.args", ["--no-mmap -t 4"], "--no-mmap -t 4"),
        (f"{MODEL}.args", ["4"], "4"),
        (f"{MODEL}.system_prompt", ['Say "yes".\n'], 'Say "yes".\n'),
        (f"{MODEL}.command", ["vllm", "serve", "--port", "{port}"], ["vllm", "serve", "--port", "{port}"]),
        (f"{MODEL}.options", ["{ ctx_size = 512 }"], {"ctx_size": 512}),
        (f"{MODEL}.options.ctx_size", ["512"], 512),
        (f"{MODEL}.options.flash_attn", ["on"], "on"),
        (f"{MODEL}.env.A", ["1"], "1"),
        (f"{MODEL}.set.chat_template_kwargs.enable_thinking", ["false"], False),
        (f"{MODEL}.set.stop", ['["a", "b"]'], ["a", "b"]),
        (f"{MODEL}.set.day", ["2031-05-01"], "2031-05-01"),
        (f"{MODEL}.set.x", ["1\ny = 2"], "1\ny = 2"),
        ("groups.large.models", ["a", "b"], ["a", "b"]),
    ],
)
def test_words_are_read_as_the_setting_needs_them(key: str, words: list[str], value: Any) -> None:
    found = setting_value(setting_path(key), words)
    assert (found, type(found)) == (value, type(value))


@pytest.mark.parametrize(
    ("key", "words", "reason"),
    [
        ("prot", ["1"], "unknown setting 'prot'; did you mean port?"),
        ("models", ["1"], "name the section as well: models.NAME.KEY"),
        ("models.tiny", ["1"], "a section is not a value: name one of its keys"),
        ("a b", ["1"], "'a b' is not a key such as port"),
        ("port", ["1", "2"], "expected one value: only lists have several"),
    ],
)
def test_what_cannot_be_meant(key: str, words: list[str], reason: str) -> None:
    with pytest.raises(ValueError) as raised:
        setting_value(setting_path(key), words)
    assert reason in str(raised.value)
