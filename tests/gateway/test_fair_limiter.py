"""Whose file is decoded next, in histories of clients that begin and end."""

from __future__ import annotations

from collections.abc import Callable

import gevent
from hypothesis import given
from hypothesis import strategies as st

from gateway.fair_limiter import FairLimiter

MOST, MOST_OF_CLIENT = 3, 2


class Files:
    """Files that wait or are decoded, by the names of their clients: ``a1`` is one of a."""

    def __init__(self) -> None:
        self.limiter = FairLimiter(MOST, MOST_OF_CLIENT)
        self.begun: list[str] = []
        self.decoded: list[str] = []
        """Those that are decoded now."""
        self._begin: dict[str, Callable[[], None]] = {}

    def wait(self, *files: str) -> None:
        for file in files:

            def begin(file: str = file) -> None:
                self.begun.append(file)
                self.decoded.append(file)

            self._begin[file] = begin
            self.limiter.wait(file[0], begin)

    def end(self, *files: str) -> None:
        for file in files:
            if file in self.decoded:
                self.decoded.remove(file)
            self.limiter.end(file[0], self._begin[file])


def test_one_client_never_has_all_decoders() -> None:
    files = Files()
    files.wait("a1", "a2", "a3")
    assert files.decoded == ["a1", "a2"]
    files.wait("b1")
    assert files.decoded == ["a1", "a2", "b1"]
    files.end("a2")
    assert files.decoded == ["a1", "b1", "a3"]


def test_clients_take_turns_however_many_files_one_of_them_has() -> None:
    files = Files()
    files.wait(*(f"a{number}" for number in range(1, 8)), "b1", "b2", "b3", "c1", "d1")
    for _ in range(6):
        files.end(files.decoded[0])
    assert files.begun == ["a1", "a2", "b1", "c1", "a3", "b2", "d1", "a4", "b3"]


def test_a_file_whose_client_leaves_gives_its_place_up() -> None:
    files = Files()
    files.wait("a1", "a2", "b1", "a3", "b2", "c1")
    files.end("a3", "b2", "b1")
    assert files.decoded == ["a1", "a2", "c1"]
    files.end("a1", "a2", "c1")
    assert not files.decoded
    assert not files.limiter._waiting
    assert not files.limiter._working


@given(st.lists(st.tuples(st.sampled_from("abcd"), st.integers(0, 5)), max_size=60))
def test_no_decoder_is_idle_while_a_client_that_may_have_it_waits(history: list[tuple[str, int]]) -> None:
    files, open_files = Files(), list[str]()
    for number, (client, choice) in enumerate(history):
        if choice > 2 and open_files:
            files.end(open_files.pop(choice % len(open_files)))
        else:
            open_files.append(f"{client}{number}")
            files.wait(open_files[-1])
        decoded = [file[0] for file in files.decoded]
        waiting = {file[0] for file in open_files if file not in files.decoded}
        assert len(decoded) <= MOST
        assert all(decoded.count(each) <= MOST_OF_CLIENT for each in decoded)
        assert len(decoded) == MOST or all(decoded.count(each) == MOST_OF_CLIENT for each in waiting)


def test_greenlets_of_clients_take_turns() -> None:
    limiter = FairLimiter(1, 1)
    order: list[str] = []

    def work(name: str) -> None:
        with limiter.turn(name[0]):
            order.append(name)
            gevent.sleep(0)

    greenlets = [gevent.spawn(work, name) for name in ("a1", "a2", "a3", "b1", "a4")]
    gevent.sleep(0)
    greenlets[2].kill()
    gevent.joinall(greenlets, timeout=5, raise_error=True)
    assert order in (["a1", "a2", "b1", "a4"], ["a1", "b1", "a2", "a4"])
