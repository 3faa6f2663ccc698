"""One changed value of a TOML text: what it means then, and that nothing else is written in another way."""

from __future__ import annotations

import tomllib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.config.toml_edit import UnchangeableError, parse_key, with_value, without_value, written_key

TEXT = """# lemonbus on this machine

port = 13305            # the port
load = [                # two
    "a",  # ] not the end
]

[models."Qwen3-0.6B"]   # small
aliases = ["q"]
options.ctx_size = 512
env = { A = "1" }

# about groups
[groups.large]
models = ["x"]
[models.b.options]
slots = 2
"""


@pytest.mark.parametrize(
    ("key", "value", "old", "new"),
    [
        ("port", 1, "port = 13305            # the port", "port = 1            # the port"),
        ("load", ["b"], 'load = [                # two\n    "a",  # ] not the end\n]', 'load = ["b"]'),
        ("slots", 8, "]\n\n[models", "]\nslots = 8\n\n[models"),
        ('models."Qwen3-0.6B".ttl', 300, '"1" }\n', '"1" }\nttl = 300\n'),
        ('models."Qwen3-0.6B".options.slots', 3, '"1" }\n', '"1" }\noptions.slots = 3\n'),
        ('models."Qwen3-0.6B".options.ctx_size', 3, "size = 512", "size = 3"),
        ('models."Qwen3-0.6B".env.A', "2", 'A = "1" }', 'A = "2" }'),
        ('models."Qwen3-0.6B".env.B', 'a"\n', 'A = "1" }', 'A = "1", B = "a\\"\\n" }'),
        ("models.b.options.ctx_size", 1, "slots = 2\n", "slots = 2\nctx_size = 1\n"),
        ("models.b.ttl", 1.5, "slots = 2\n", "slots = 2\n\n[models.b]\nttl = 1.5\n"),
        ('models."c d".set', {"a": True}, "slots = 2\n", 'slots = 2\n\n[models."c d"]\nset = { a = true }\n'),
    ],
)
def test_a_value_is_set(key: str, value: Any, old: str, new: str) -> None:
    assert TEXT.count(old) == 1
    assert with_value(TEXT, parse_key(key), value) == TEXT.replace(old, new)
    windows = TEXT.replace("\n", "\r\n")
    changed = with_value(windows, parse_key(key), value)
    assert changed == TEXT.replace(old, new).replace("\n", "\r\n")


@pytest.mark.parametrize(
    ("text", "key", "expected"),
    [
        ("", "slots", "slots = 8\n"),
        ("", "models.a.ttl", "[models.a]\nttl = 8\n"),
        ("port = 1", "slots", "port = 1\nslots = 8\n"),
        ("[models.a]", "slots", "slots = 8\n\n[models.a]"),
        ("[models.a]", "models.a.ttl", "[models.a]\nttl = 8\n"),
        ("# ours\n\n# a\n[models.a]\n", "slots", "# ours\n\nslots = 8\n# a\n[models.a]\n"),
        ("models.a.ttl = 1\n", "models.a.queue", "models.a.ttl = 1\nmodels.a.queue = 8\n"),
        ("models = { a = { ttl = 1 } }\n", "models.b.queue", "models = { a = { ttl = 1 }, b.queue = 8 }\n"),
        ("models = { a = {} }\n", "models.a.queue", "models = { a = { queue = 8 } }\n"),
    ],
)
def test_a_value_is_set_in_other_forms(text: str, key: str, expected: str) -> None:
    assert with_value(text, parse_key(key), 8) == expected


@pytest.mark.parametrize(
    ("key", "old", "new"),
    [
        ("port", "port = 13305            # the port\n", ""),
        ("load", 'load = [                # two\n    "a",  # ] not the end\n]\n', ""),
        ('models."Qwen3-0.6B".options', "options.ctx_size = 512\n", ""),
        ('models."Qwen3-0.6B".env.A', 'env = { A = "1" }\n', ""),
        ("groups.large", '[groups.large]\nmodels = ["x"]\n', ""),
        ("groups", '[groups.large]\nmodels = ["x"]\n', ""),
        (
            'models."Qwen3-0.6B"',
            '[models."Qwen3-0.6B"]   # small\naliases = ["q"]\noptions.ctx_size = 512\nenv = { A = "1" }\n\n',
            "",
        ),
    ],
)
def test_a_value_or_a_table_is_removed(key: str, old: str, new: str) -> None:
    assert TEXT.count(old) == 1
    assert without_value(TEXT, parse_key(key)) == TEXT.replace(old, new)


def test_one_of_several_entries_of_a_table_on_one_line_is_removed() -> None:
    text = 'set = { a = 1, "b c" = { d = [1, 2], e = true }, f = 1.5 } # why\n'
    assert without_value(text, ("set", "b c", "d")) == 'set = { a = 1, "b c" = { e = true }, f = 1.5 } # why\n'


def test_a_table_that_is_written_in_several_places_becomes_one_value() -> None:
    text = "[models.a]\noptions.x = 1\nttl = 3\noptions.y = 2\n"
    changed = with_value(text, ("models", "a", "options"), {"z": 1})
    assert changed == "[models.a]\nttl = 3\noptions = { z = 1 }\n"


@pytest.mark.parametrize("key", ["slots", "models.c", "models.c.ttl", "port.x", 'models."Qwen3-0.6B".env.B'])
def test_what_is_not_there_is_not_removed(key: str) -> None:
    with pytest.raises(KeyError):
        without_value(TEXT, parse_key(key))


@pytest.mark.parametrize("text", ["port = 1\n", "[[port]]\nx = 1\n"])
def test_a_key_below_what_is_not_a_table_is_refused(text: str) -> None:
    with pytest.raises(UnchangeableError):
        with_value(text, ("port", "x"), 1)


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("slots", ("slots",)),
        ('models."Qwen3-0.6B".ttl', ("models", "Qwen3-0.6B", "ttl")),
        ("models.'a b'.options.x", ("models", "a b", "options", "x")),
        ("models.Qwen3-0.6B.ttl", ("models", "Qwen3-0", "6B", "ttl")),
    ],
)
def test_a_key_is_written_as_in_the_file(text: str, path: tuple[str, ...]) -> None:
    assert parse_key(text) == path
    assert parse_key(written_key(path)) == path


@pytest.mark.parametrize("text", ["", ".", "a b", "a =", "a = 1 #", "a = 1\nb", "[a]\nb", 'a."', "a..b", "a.end = 0 #"])
def test_what_is_not_one_key(text: str) -> None:
    with pytest.raises(ValueError):
        parse_key(text)


NAMES = st.sampled_from(["a", "b", "c d", 'e"f', "g.h", "ö"])
SCALARS = st.one_of(
    st.booleans(), st.integers(-(10**12), 10**12), st.text(max_size=8), st.lists(st.text(max_size=3), max_size=3)
)


@st.composite
def documents(draw: st.DrawFn) -> tuple[str, list[tuple[str, ...]]]:
    """Return a text with values in any of the forms of TOML, and the keys of its values."""
    keys: dict[tuple[str, ...], Any] = {}
    lines: list[str] = []
    for name in draw(st.lists(NAMES, unique=True, max_size=3)):
        keys[name,] = draw(SCALARS)
        lines += [
            f"# {name}",
            with_value("", (name,), keys[name,]).rstrip("\n") + draw(st.sampled_from(["", "  # why"])),
        ]
    for section in draw(st.lists(NAMES, unique=True, max_size=3)):
        lines += ["", f"# models {section}", f"[models.{written_key((section,))}]"]
        for name in draw(st.lists(NAMES, unique=True, max_size=3)):
            below = draw(st.sampled_from([(), ("x",), ("x", "y")]))
            form = draw(st.sampled_from(["dotted", "inline"]))
            value = keys["models", section, name, *below] = draw(SCALARS)
            if below and form == "inline":
                nested: Any = value
                for part in reversed(below):
                    nested = {part: nested}
                lines.append(with_value("", (name,), nested).rstrip("\n"))
            else:
                lines.append(f"{written_key((name, *below))} = {with_value('', ('v',), value)[4:-1]}")
    return "\n".join(lines) + draw(st.sampled_from(["", "\n", "\n\n"])), list(keys)


@given(documents(), st.data())
def test_any_text_means_the_same_but_for_the_change_and_keeps_its_comments(
    document: tuple[str, list[tuple[str, ...]]], data: st.DataObject
) -> None:
    text, keys = document
    new = st.tuples(st.just("models"), NAMES, NAMES) | st.tuples(NAMES)
    path = data.draw(st.sampled_from(keys) | new if keys else new)
    value = data.draw(SCALARS)
    expected: Any = tomllib.loads(text)
    inner = expected
    for name in path[:-1]:
        inner = inner.setdefault(name, {})
    inner[path[-1]] = value
    changed = with_value(text, path, value)
    assert tomllib.loads(changed) == expected
    comments = [line for line in text.splitlines() if line.startswith("#")]
    assert [line for line in changed.splitlines() if line.startswith("#")] == comments
    if path in keys:
        removed = without_value(text, path)
        assert [line for line in removed.splitlines() if line.startswith("#")] == comments
