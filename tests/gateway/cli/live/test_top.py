"""``lemonbus top`` and ``ps``: once, as JSON, and on a real terminal that is restored in every end."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import termios
from collections.abc import Callable, Iterator
from typing import Any

import psutil
import pytest
from msgspec import structs

from protocol.messages.overview import NodeOverview
from tests.gateway.cli.conftest import Ends
from tests.gateway.cli.live.overviews import BUSY, NOW, fields
from tests.gateway.cli.live.streaming import OVERVIEW, OverviewStream, streams
from tests.gateway.cli.terminal_process import LAUNCH, TerminalProcess
from tests.gateway.fake_server import FakeServer, Reply
from tests.support.waiting import wait_for

OTHER_SCREEN, USUAL_SCREEN, CURSOR = "\x1b[?1049h", "\x1b[?1049l", "\x1b[?25h"
FOOT = "sorted by"
MAX_DRAWINGS = 30


class Screen(TerminalProcess):
    """`lemonbus top` on a terminal of a size."""

    def __init__(self, columns: int = 100, lines: int = 30) -> None:
        super().__init__("top", columns=columns, lines=lines)

    def send(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def drawn(self, wanted: Callable[[list[str]], bool]) -> list[str]:
        """Return the lines of the first drawing that is as wanted. There is one each second at least, because requests get older."""
        for _ in range(MAX_DRAWINGS):
            last = self.until("\x1b[J").rpartition("\x1b[H")[2]
            lines = re.sub(r"\x1b\[\d+[Km]", "", last).split("\r\r\n")
            if wanted(lines):
                return lines
        raise AssertionError(f"the last of {MAX_DRAWINGS} drawings: {lines}")

    @property
    def is_stopped(self) -> bool:
        return psutil.Process(self._process.pid).status() == psutil.STATUS_STOPPED

    @property
    def mode(self) -> list[Any]:
        return termios.tcgetattr(self._fd)


@pytest.fixture
def stream(server: FakeServer) -> Iterator[OverviewStream]:
    stream = OverviewStream()
    with streams(server, stream):
        yield stream


@pytest.mark.usefixtures("stream")
def test_it_is_shown_until_q_is_typed() -> None:
    with Screen() as screen:
        screen.until(OTHER_SCREEN)
        assert "4 running, 4 waiting" in screen.until(FOOT)
        assert not screen.mode[3] & termios.ICANON, "keys come at once"
        screen.type("q")
        screen.until(CURSOR + USUAL_SCREEN)
        assert screen.ends() == 0
        assert screen.mode[3] & termios.ICANON
        assert screen.mode[3] & termios.ECHO


@pytest.mark.usefixtures("stream")
@pytest.mark.parametrize(
    ("how", "exit_code"),
    [("\x03", 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129), (signal.SIGINT, 130)],
    ids=["ctrl-c", "term", "hup", "int"],
)
def test_the_terminal_is_restored_whatever_ends_it(how: str | signal.Signals, exit_code: int) -> None:
    with Screen() as screen:
        screen.until(FOOT)
        if isinstance(how, str):
            screen.type(how)
        else:
            screen.send(how)
        screen.until(CURSOR + USUAL_SCREEN)
        assert screen.ends() == exit_code
        assert screen.mode[3] & termios.ICANON


def test_a_refusal_restores_the_terminal_and_is_printed_there(server: FakeServer) -> None:
    first = OverviewStream()
    with streams(server, first, Reply({"error": {"message": "the key was revoked"}}, 401)), Screen() as screen:
        screen.until(FOOT)
        first.end()
        screen.until(CURSOR + USUAL_SCREEN)
        screen.until("lemonbus: the key was revoked")
        assert screen.ends() == 4


def test_it_follows_and_sorts_and_scrolls_and_fits_the_size(stream: OverviewStream) -> None:
    with Screen(lines=14) as screen:
        assert screen.until("more lines below").index("broken") > 0
        stream.send("patch", {"time": NOW + 1, "running": 3})
        screen.until("3 running, 4 waiting")
        screen.type("m")
        assert screen.until("sorted by memory").index("idle") > 0
        screen.type("\x1b[6~")
        screen.until("Who waits")
        screen.type("\x1b[F")
        screen.until("load_failed")
        screen.resize(60, 30)
        assert len(screen.drawn(lambda lines: max(map(len, lines)) <= 60)) == 30
        screen.resize(200, 50)
        assert len(screen.drawn(lambda lines: any("CONTEXT  DEVICE  USE" in line for line in lines))) == 50


def test_a_restart_of_the_server_is_shown_and_outlived(server: FakeServer) -> None:
    first, second = OverviewStream(), OverviewStream(running=0, waiting=0)
    away = Reply({"error": {"message": "the server is starting"}}, 503)
    with streams(server, first, away, second), Screen() as screen:
        screen.until("4 running")
        first.end()
        screen.until("waiting for the server, as of")
        screen.until("0 running, 0 waiting")
        screen.until(FOOT)
        screen.type("q")
        assert screen.ends() == 0


@pytest.mark.usefixtures("stream")
def test_ctrl_z_gives_the_terminal_back_and_fg_takes_it_again() -> None:
    with Screen() as screen:
        screen.until(FOOT)
        screen.type("\x1a")
        screen.until(CURSOR + USUAL_SCREEN)
        wait_for(lambda: screen.is_stopped, "it has stopped")
        screen.send(signal.SIGCONT)
        screen.until(OTHER_SCREEN)
        screen.until(FOOT)
        screen.type("q")
        assert screen.ends() == 0


@pytest.mark.usefixtures("stream")
def test_without_colours_if_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    with Screen() as screen:
        drawn = screen.until(FOOT)
    assert "ready" in drawn
    assert not {"\x1b[31m", "\x1b[32m"} & {drawn[at : at + 5] for at in range(len(drawn))}


def test_without_a_terminal_it_is_printed_once(server: FakeServer, lemonbus: Ends) -> None:
    server.replies[OVERVIEW] = Reply(fields())
    code, out, err = lemonbus("top")
    lines = [" ".join(line.split()) for line in out.splitlines()]
    assert (code, err) == (0, "")
    assert lines[0] == f"lemonbus 0.1.0: ok, up 1 h 6 min, 4 running, 4 waiting, at {server.url}"
    assert "broken failed - - - - - - - -" in lines
    assert lines[lines.index("Slow or not loaded") + 2].startswith("broken failed 3 times")
    assert [asked[1] for asked in server.asked] == [OVERVIEW[1]]
    assert json.loads(lemonbus("top", "--once", "--json")[1]) == {**fields(), "disks": {}}


def test_json_is_a_line_for_each_state(server: FakeServer) -> None:
    first, second = OverviewStream(), OverviewStream(running=0)
    first.send("patch", {"time": NOW + 1})
    first.end()
    with (
        streams(server, first, second),
        subprocess.Popen(
            [sys.executable, LAUNCH, "top", "--json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        ) as follower,
    ):
        assert follower.stdout is not None
        assert follower.stderr is not None
        try:
            found = [json.loads(follower.stdout.readline()) for _ in range(3)]
            warning = follower.stderr.readline()
        finally:
            follower.kill()
    assert found == [fields(), fields(time=NOW + 1), fields(running=0)]
    assert warning == "lemonbus: the connection to the server is lost; waiting for the server\n"


def test_top_without_a_server_ends_with_3(lemonbus: Ends) -> None:
    for words in (["top"], ["top", "--json"], ["ps"]):
        assert lemonbus(*words, "--url", "http://127.0.0.1:1")[0] == 3


def test_a_server_of_another_release_is_an_error(server: FakeServer, lemonbus: Ends) -> None:
    server.replies[OVERVIEW] = Reply({"error": {"message": "no such route"}}, 404)
    for words in (["top"], ["ps"]):
        assert lemonbus(*words)[::2] == (1, "lemonbus: no such route\n")


def test_ps_lists_what_is_loaded_or_being_loaded(server: FakeServer, lemonbus: Ends) -> None:
    server.replies[OVERVIEW] = Reply(fields())
    code, out, err = lemonbus("ps")
    assert (code, err) == (0, "")
    assert [" ".join(line.split()) for line in out.splitlines()] == [
        "NAME STATE RUNNING WAITING MEMORY DEVICE CONTEXT UNTIL",
        "busy ready 4 of 4 3 700 MB cpu 4096 in use",
        "idle ready 0 of 1 0 2.0 GB gpu-0 - unloaded in 1 min",
        "loading loading 30%, 42 s - 1 - - - -",
    ]
    assert list(json.loads(lemonbus("ps", "--json")[1])) == ["busy", "idle", "loading"]
    moved = {"busy": structs.replace(BUSY, node="gpu2")}
    server.replies[OVERVIEW] = Reply(fields(nodes={"gpu2": NodeOverview("ready")}, models=moved))
    assert [" ".join(line.split()) for line in lemonbus("ps")[1].splitlines()] == [
        "NAME STATE NODE RUNNING WAITING MEMORY DEVICE CONTEXT UNTIL",
        "busy ready gpu2 4 of 4 3 700 MB cpu 4096 in use",
    ]
    server.replies[OVERVIEW] = Reply(fields(models={}))
    assert lemonbus("ps") == (0, "", "No model is loaded; the first request for one loads it.\n")
