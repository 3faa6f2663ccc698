"""The screen of `lemonbus top` at several sizes, its order, its scrolling, and the keys of its terminal."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs
from rich.cells import cell_len

from gateway.cli.live.layout import ScreenContent, ScreenLayout, Style, lay_out, text_of
from gateway.cli.live.sections import ORDERS
from gateway.cli.live.terminal import parse_keys
from gateway.cli.live.viewer import Viewed, moved, notice_of
from protocol.messages.health import ReplicaReport
from protocol.messages.overview import NodeOverview, PlaceMemory, ServerOverview
from tests.gateway.cli.live.overviews import BROKEN, BUSY, IDLE, NOW, overview

URL = "http://gpu1:13305"


def page(width: int, height: int = 60, **more: Any) -> ScreenLayout:
    return lay_out(ScreenContent(overview(), NOW, URL, **more), width, height)


def shown(found: ScreenLayout) -> list[str]:
    return [" ".join(text_of(line).split()) for line in found.lines if line]


@pytest.mark.parametrize(
    ("width", "head", "busy"),
    [
        (60, "MODEL STATE RUN WAIT TOK/S", "busy ready 4/4 3 21.5"),
        (80, "MODEL STATE RUN WAIT TOK/S 1ST TOKEN MEMORY", "busy ready 4/4 3 21.5 0.31 s 700 MB"),
        (
            200,
            "MODEL STATE RUN WAIT TOK/S 1ST TOKEN MEMORY CONTEXT DEVICE USE",
            "busy ready 4/4 3 21.5 0.31 s 700 MB 4096 cpu in use",
        ),
    ],
)
def test_a_wider_screen_has_more_columns(width: int, head: str, busy: str) -> None:
    lines = shown(page(width))
    assert head in lines
    assert busy in lines
    assert all(cell_len(text_of(line)) <= width for line in page(width).lines)


def test_several_machines_have_a_table_and_each_model_its_node() -> None:
    lost = NodeOverview("lost", NOW - 12)
    card = PlaceMemory(24 * 10**9, 2 * 10**9, "Card")
    ready = NodeOverview("ready", NOW - 70, devices=["nvidia_gpu"], memory={"GPU-1": card}, models=["busy"])
    several = overview(
        models={"busy": structs.replace(BUSY, node="gpu2"), "idle": IDLE}, nodes={"gpu2": ready, "gpu3": lost}
    )
    lines = shown(lay_out(ScreenContent(several, NOW, URL), 200, 60))
    assert "MODEL STATE NODE RUN WAIT TOK/S 1ST TOKEN MEMORY CONTEXT DEVICE USE" in lines
    assert "busy ready gpu2 4/4 3 21.5 0.31 s 700 MB 4096 cpu in use" in lines
    at = lines.index("Nodes")
    assert lines[at + 1 : at + 4] == [
        "NODE STATE FOR MODELS DEVICES MEMORY FREE",
        "gpu2 ready 1 min 1 nvidia_gpu Card 2.0 GB",
        "gpu3 lost 12 s - - -",
    ]
    assert not any(line.startswith("Memory: ") for line in lines), "it is in the table of nodes"


def test_the_engines_of_a_model_that_has_several_have_a_table() -> None:
    engines = [ReplicaReport(1, "ready", slots=2, running=1), ReplicaReport(2, "loading")]
    lines = shown(
        lay_out(ScreenContent(overview(models={"busy": structs.replace(BUSY, replicas=engines)}), NOW, URL), 200, 60)
    )
    at = lines.index("Replicas")
    assert lines[at + 1 : at + 4] == ["MODEL REPLICA STATE NODE RUN", "busy 1 ready - 1/2", "busy 2 loading - -"]
    assert "Replicas" not in shown(page(200))


def test_everything_that_an_operator_asks_is_there() -> None:
    lines = shown(page(200))
    assert lines[:3] == [
        f"lemonbus 0.1.0: ok, up 1 h 6 min, 4 running, 4 waiting, at {URL}",
        "Memory: host 5.0 GB of 64 GB free; Card 20 GB of 24 GB free, 93 % busy",
        "Problem: keys.json is broken",
    ]
    for title, line in (
        ("Slow or not loaded", "broken failed 3 times: the file is not a model; tried again in 9 s"),
        ("Engines that died in the last 24 hours", "idle 2 1 h 6 min ago: llama-server was killed by SIGKILL"),
        ("Who waits", "ci 2 busy"),
        ("Requests in flight, 2 of 8 shown", "req-1 ci chat/completions busy running 3 s 33"),
        ("Downloads", "Far running 100 MB of 1.0 GB d.gguf"),
        ("Last requests that ended", "req-9 10 s ago - broken - - 0.50 s 0+0 load_failed: no model"),
    ):
        assert lines[lines.index(title) + 2] == line
    assert "req-2 - chat/completions busy waiting, position 1, about 2.50 s 9 s -" in lines
    assert "without a key 1 busy" in lines


def test_a_server_without_models_says_so() -> None:
    nothing: dict[str, Any] = {"requests": {}, "ended": {}, "downloads": {}, "running": 0, "waiting": 0, "memory": {}}
    calm = overview(models={}, server=ServerOverview("0.1.0", "ok", NOW, 4), **nothing)
    lines = shown(lay_out(ScreenContent(calm, NOW, URL), 120, 10))
    assert lines[0] == f"lemonbus 0.1.0: ok, up 0 s, 0 running, 0 waiting, at {URL}"
    assert lines[2] == "No model is loaded; the first request for one loads it."
    assert len(lines) == 4, "no empty tables"


@pytest.mark.parametrize(
    ("key", "order"),
    [
        ("a", "broken busy loading idle"),
        ("w", "busy loading broken idle"),
        ("r", "busy broken idle loading"),
        ("m", "idle busy broken loading"),
        ("u", "busy idle broken loading"),
        ("t", "busy broken idle loading"),
        ("f", "busy broken idle loading"),
        ("n", "broken busy idle loading"),
    ],
)
def test_keys_sort_the_models(key: str, order: str) -> None:
    position = moved(Viewed(scroll=3), key, page(80))
    assert position.scroll == 0
    lines = shown(page(80, order=position.order))
    at = lines.index("MODEL STATE RUN WAIT TOK/S 1ST TOKEN MEMORY")
    assert [line.split()[0] for line in lines[at + 1 : at + 5]] == order.split()
    assert f"sorted by {position.order.name}" in lines[-1]


def test_each_order_has_its_own_key() -> None:
    keys = [order.key for order in ORDERS]
    assert len(set(keys)) == len(keys)
    assert not set(keys) & set("qjk ")


def test_a_small_screen_scrolls() -> None:
    whole, small = page(80, 60), page(80, 12)
    body = whole.lines[3:-1]
    seen, position = [], Viewed()
    for _ in range(small.max_scroll + 1):
        at = page(80, 12, scroll=position.scroll)
        seen.append(at.lines[3])
        position = moved(position, "down", at)
    assert seen == body[: len(seen)]
    assert position.scroll == small.max_scroll
    assert f"{small.max_scroll} more lines below" in text_of(small.lines[-1])
    assert "more lines" not in text_of(page(80, 12, scroll=position.scroll).lines[-1])
    for key, expected in (
        ("up", small.max_scroll - 1),
        ("page up", small.max_scroll - small.body_height),
        ("home", 0),
        ("end", small.max_scroll),
        ("x", small.max_scroll),
    ):
        assert moved(position, key, at).scroll == expected


def test_a_page_that_became_shorter_is_not_scrolled_beyond_its_end() -> None:
    assert page(80, 60, scroll=1000).scroll == 0
    assert page(80, 12, scroll=1000).scroll == page(80, 12).max_scroll


def test_control_characters_of_names_and_reasons_do_not_reach_the_terminal() -> None:
    bad = overview(models={"a\x1b[2Jb\u202e": BUSY}, server=ServerOverview("1", "ok", NOW, 4, problems=["x\x1b]0;y"]))
    text = "".join(text_of(line) for line in lay_out(ScreenContent(bad, NOW, URL), 200, 60).lines)
    assert text.isprintable()
    assert "a[2Jb" in text


def test_colours_mark_the_state() -> None:
    styles = {text: style for line in page(120).lines for text, style in line}
    assert (styles["ready"], styles["failed"]) == (Style.GOOD, Style.BAD)


@given(st.integers(1, 200), st.integers(1, 60), st.integers(0, 50), st.text(max_size=30), st.integers(0, 40))
def test_a_page_fits_any_screen(width: int, height: int, scroll: int, name: str, count: int) -> None:
    models = {f"{name}{number}": (BUSY, IDLE, BROKEN)[number % 3] for number in range(count)}
    found = lay_out(ScreenContent(overview(models=models), NOW, URL, scroll=scroll, notice=name), width, height)
    assert len(found.lines) == height
    assert all(cell_len(text_of(line)) <= width for line in found.lines)
    assert 0 <= found.scroll <= found.max_scroll


@pytest.mark.parametrize(
    ("problem", "age", "expected"),
    [
        ("", 1.0, ""),
        ("", 7.0, "the server has sent nothing for 7 s; q: quit"),
        ("lost", 61.0, "lost; waiting for the server, as of 1 min ago; q: quit"),
    ],
)
def test_what_is_said_about_the_connection(problem: str, age: float, expected: str) -> None:
    assert notice_of(problem, age) == expected


@pytest.mark.parametrize(
    ("text", "keys", "rest"),
    [
        ("q", ["q"], ""),
        ("\x1b[A\x1b[B\x1bOA", ["up", "down", "up"], ""),
        ("\x1b[5~\x1b[6~\x1b[H\x1b[4~", ["page up", "page down", "home", "end"], ""),
        ("m\x1b[1;5Cw", ["m", "w"], ""),
        ("m\x1b", ["m"], "\x1b"),
        ("m\x1b[", ["m"], "\x1b["),
        ("\x1b[5", [], "\x1b[5"),
        ("\x1bx", ["\x1b", "x"], ""),
        ("é", ["é"], ""),
    ],
)
def test_keys_of_a_terminal(text: str, keys: list[str], rest: str) -> None:
    assert parse_keys(text) == (keys, rest)
