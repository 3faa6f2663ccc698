"""The line of each key of a TOML text, and that no valid text confuses the scanner."""

from __future__ import annotations

import tomllib
from typing import Any

import pytest
from hypothesis import strategies as st

from protocol.config.toml_lines import KeyPath, key_lines
from tests.support.accepted_share import accepted_share

TEXT = r'''# a comment with [brackets] and = signs
port = 13305            # 2
"host" = '127.0.0.1'
load = [                # 4
    "a",  # ] not the end
    "b = c", ["nested", '}'],
]
inline = { ttl = 3, "set" = { temperature = 0.1 }, list = [1, { x = 2 }] }

[models."Qwen3-0.6B-GGUF"]       # 10
ttl = 300
system_prompt = """
[models.fake]
ttl = 1
A quote: ""\" and "" two.""""
literal = \'\'\'
key = 'value'
\'\'\'
env.A.B = "x"                     # 19
[ models . 'it is' . set ]
"a\u0062c" = true
created = 2024-01-01 10:00:00

[defaults.llamacpp]
options.ctx_size = 8192
[[array]]
one = 1
[[array]]
one = 2
'''.replace(r"\'", "'")


@pytest.mark.parametrize(
    ("path", "line"),
    [
        (("port",), 2),
        (("host",), 3),
        (("load",), 4),
        (("inline",), 8),
        (("inline", "ttl"), 8),
        (("inline", "set", "temperature"), 8),
        (("models",), 10),
        (("models", "Qwen3-0.6B-GGUF"), 10),
        (("models", "Qwen3-0.6B-GGUF", "ttl"), 11),
        (("models", "Qwen3-0.6B-GGUF", "system_prompt"), 12),
        (("models", "Qwen3-0.6B-GGUF", "literal"), 16),
        (("models", "Qwen3-0.6B-GGUF", "env", "A", "B"), 19),
        (("models", "it is", "set"), 20),
        (("models", "it is", "set", "abc"), 21),
        (("models", "it is", "set", "created"), 22),
        (("defaults", "llamacpp", "options"), 25),
        (("defaults", "llamacpp", "options", "ctx_size"), 25),
        (("array",), 26),
        (("array", "one"), 27),
    ],
)
def test_lines(path: KeyPath, line: int) -> None:
    assert key_lines(TEXT)[path] == line


def paths_of(table: Any, path: KeyPath = ()) -> set[KeyPath]:
    if isinstance(table, list):
        return {found for item in table for found in paths_of(item, path)}
    if not isinstance(table, dict):
        return set()
    return {
        found for key, value in table.items() for found in {(*path, key)} | paths_of(value, (*path, key))
    }  # fmt: skip


def test_the_scanner_finds_the_keys_that_tomllib_finds() -> None:
    assert set(key_lines(TEXT)) == paths_of(tomllib.loads(TEXT))


@pytest.mark.parametrize(
    "text", ["", "\n\n", "# only", "a=1", "a=1\r\nb=2\r\n", "a = ''''''\nb=1", 'a = """"""\nb=1', "a=[]\nb={}"]
)
def test_short_texts(text: str) -> None:
    lines = key_lines(text)
    assert set(lines) == paths_of(tomllib.loads(text))
    assert lines.get(("b",), 2) in (1, 2)


PIECES = st.sampled_from(
    [
        *("[a]", "[a.b]", "['c d']", "[[e]]", '["x.y".z]', "", "# note", "k = 1", "k.l = [1, 2]"),
        *('m = "\\" # ["', "n = '''\n[q]\n'''", 'o = """\n"" [r]\\\n  s = 1"""', "p = [\n# ]\n{ t = '}' }, [\n], ]"),
        *("u = { v.w = 1, 'x' = [] }", "'' = 0", '"" = -1e3', "bare-key_1 = 07:32:00", "q = '''a''''", "r = inf # x"),
    ]
)


@accepted_share(0.2, examples=300, pieces=st.lists(PIECES, max_size=8))
def test_any_valid_text_has_the_lines_of_its_keys(pieces: list[str]) -> bool:
    text = "\n".join(pieces)
    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        return False
    lines = key_lines(text)
    assert set(lines) == paths_of(table)
    rows = text.split("\n")
    assert all(path[-1] in rows[line - 1] for path, line in lines.items())
    return True
