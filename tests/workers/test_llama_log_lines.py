"""The lines that llama.cpp prints: their level, what a client wrote in them, and which request they belong to."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from workers.backends.llamacpp.log_lines import parse_line
from workers.engine.line_attribution import LATE_LINE_S, LineAttribution

PREFIX = b"0.00.001.527 "


@pytest.mark.parametrize(
    ("line", "level"),
    [
        (b"I srv   load_model: loading", "debug"),
        (b"W load: odd", "warning"),
        (b"E srv    send_error: no", "debug"),
        (b"E srv    load_model: no", "error"),
        (b"W srv          stop: cancel task, id_task = 2", "debug"),
        (b"D hm", "debug"),
        (b"I slot   release: id 0", "debug"),
        (b"E slot   release: id 0", "error"),
        (b"W Wrong type supplied for parameter 'id', using default value: a b", "debug"),
        (b"E failed to parse grammar", "debug"),
        (b"E srv  process_sing: failed to launch slot with task, id_task = 23", "debug"),
        (b'W srv    operator(): got exception: {"error":{"message":"mine"}}', "trace"),
        (b"W common_sampler_types_from_names: unable to match sampler by name 'mine'", "trace"),
        (b"E llg error: mine", "trace"),
    ],
)
@pytest.mark.parametrize("asked", [True, False])
def test_a_line_with_a_level(line: bytes, level: str, asked: bool) -> None:
    assert parse_line(PREFIX + line, asked) == (level, line[2:].decode())


@pytest.mark.parametrize(
    "line",
    [
        b"Illegal instruction",
        b"/a/b/ggml.c:123: GGML_ASSERT(a) failed",
        b"terminate called after throwing an instance of 'x'",
        b"#3  0x00007f in ggml_abort",
        b"/usr/lib/libggml.so(+0x123) [0x7f]",
        b"Fatal Python error: Segmentation fault",
    ],
)
def test_the_last_lines_of_an_engine_are_logged(line: bytes) -> None:
    assert parse_line(line, asked=True) == ("info", line.decode())


def test_after_the_first_request_a_line_without_a_level_may_be_a_clients_text() -> None:
    assert parse_line(b"root ::= mine \xff", asked=False) == ("info", "root ::= mine \ufffd")
    assert parse_line(b"root ::= mine", asked=True) == ("trace", "root ::= mine")


class _Attempt:
    def __init__(self, label: str) -> None:
        self.run = self
        self.label = label


def test_a_line_belongs_to_the_request_that_runs_or_just_ran() -> None:
    attempts: dict[int, _Attempt] = {}
    now = 10.0
    attribution = LineAttribution(attempts, lambda: now, lambda _callback: None)
    assert attribution() == ""
    attempts[1] = _Attempt("a")
    assert attribution() == "a"
    attempts[2] = _Attempt("b")
    assert attribution() is None
    attribution.before_end("a")
    del attempts[1]
    assert attribution() == "b"
    now += LATE_LINE_S
    attribution.before_end("b")
    del attempts[2]
    assert attribution() == "b"
    now += LATE_LINE_S
    assert attribution() == ""
    attribution.before_end("c")
    attribution.before_end("d")
    assert attribution() == "", "it may be of either"


def test_the_output_is_read_before_the_requests_that_run_change() -> None:
    attempts: dict[int, _Attempt] = {}
    later: list[Callable[[], None]] = []
    read: list[str] = []
    attribution = LineAttribution(attempts, lambda: 10.0, later.append)
    attribution.read_output = read.append
    attribution.before_start()
    attempts[1] = _Attempt("a")
    attribution.before_start()
    attempts[2] = _Attempt("b")
    attribution.before_start()
    attempts[3] = _Attempt("c")
    assert read == ["", "a"], "among several, a line belongs to none anyway"
    for number, label in ((3, "c"), (2, "b"), (1, "a")):
        attribution.before_end(label)
        del attempts[number]
    assert read == ["", "a", ""]
    (callback,) = later
    callback()
    assert read == ["", "a", "", "a"], "after the answer of the last one has left"
