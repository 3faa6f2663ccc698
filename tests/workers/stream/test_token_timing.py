"""The timing of a generation: a time for each token, whatever pieces and figures the engine sends."""

from __future__ import annotations

from array import array
from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.messages.events import MAX_TOKEN_TIMES, Outcome
from workers.stream.token_timing import EngineMark, EngineSpan, TokenTimes, TokenTiming


def timed(
    pieces: list[tuple[int, float]], output: int, end: float, engine: EngineSpan | None, watched: bool = True
) -> TokenTimes:
    """A request sent at 10 s; ``pieces``: tokens and when they came."""
    timing = TokenTiming(10.0)
    for tokens, when in pieces:
        timing.add(tokens, when)
    return timing.finish(output, end, engine, watched)


def each(times: TokenTimes) -> list[float]:
    return Outcome(token_times=times.each).each_token_s


def test_only_the_first_piece_is_the_first() -> None:
    timing = TokenTiming(10.0)
    assert [timing.add(1, 11.0), timing.add(2, 12.0), timing.add(1, 13.0)] == [True, False, False]


PROMPT = EngineSpan(2.0, 0.0)


@pytest.mark.parametrize(
    ("pieces", "output", "end", "engine", "first", "decode", "times"),
    [
        # The first token's time begins when the prompt was processed.
        ([(1, 12.25), (1, 12.75), (1, 13.75)], 3, 13.75, PROMPT, 2.25, 1.75, [0.25, 0.5, 1.0]),
        # The tokens of one piece share its time.
        ([(1, 12.25), (2, 13.25)], 3, 13.25, PROMPT, 2.25, 1.25, [0.25, 0.5, 0.5]),
        ([(2, 12.25), (1, 13.25)], 3, 13.25, PROMPT, 2.25, 1.25, [0.25, 0.0, 1.0]),
        # The token that ends the response shows nothing.
        ([(1, 12.25), (1, 12.75)], 3, 13.0, PROMPT, 2.25, 1.0, [0.25, 0.5, 0.25]),
        # More pieces than tokens.
        ([(1, 12.25), (1, 12.75), (1, 13.75)], 2, 13.75, PROMPT, 2.25, 1.75, [0.25, 1.5]),
        # An engine that reports no times: the first token took as long as the others.
        ([(1, 12.0), (1, 12.5), (1, 13.5)], 3, 13.5, None, 2.0, 2.25, [0.75, 0.5, 1.0]),
        # An engine whose clock differs from ours.
        ([(1, 12.0), (1, 12.5)], 2, 12.5, EngineSpan(2.5, 1.0), 2.0, 0.5, [0.0, 0.5]),
        # Nothing showed.
        ([], 2, 13.0, EngineSpan(2.0, 0.5), 2.0, 0.5, [0.25, 0.25]),
        ([], 2, 13.0, None, 0.0, 3.0, []),
        # Nothing was generated: an embedding.
        ([], 0, 13.0, PROMPT, 0.0, 0.0, []),
    ],
)
def test_every_token_has_its_time(
    pieces: list[tuple[int, float]],
    output: int,
    end: float,
    engine: EngineSpan | None,
    first: float,
    decode: float,
    times: list[float],
) -> None:
    found = timed(pieces, output, end, engine)
    assert (found.first, found.decode, each(found)) == (first, decode, times)


def test_batched_reads_use_the_engines_timings() -> None:
    found = timed([(4, 15.0)], 4, 15.0, EngineSpan(2.0, 1.0), watched=False)
    assert (found.first, found.decode, each(found)) == (2.0, 1.0, [0.25] * 4), "the mean: no more is known"


@pytest.mark.parametrize(
    ("marks", "times"),
    [
        ([(1, 0.25), (2, 0.5), (4, 1.5)], [0.25, 0.25, 0.5, 0.5]),
        ([(2, 0.5), (2, 0.75), (4, 1.0)], [0.25, 0.25, 0.25, 0.25]),
        ([(2, 1.0)], [0.5, 0.5, 0.5, 0.5]),
        ([(9, 1.0)], [0.25, 0.25, 0.25, 0.25]),
        ([(0, 1.0)], [0.0, 0.0, 0.0, 0.0]),
    ],
)
def test_the_engines_marks_are_the_times_of_tokens_that_were_not_watched(
    marks: list[tuple[int, float]], times: list[float]
) -> None:
    timing = TokenTiming(10.0)
    timing.add(4, 15.0)
    found = timing.finish(4, 15.0, EngineSpan(2.0, 1.5), False, [EngineMark(*mark) for mark in marks])
    assert each(found) == times


def test_an_answer_that_came_whole_has_no_time_of_its_first_token() -> None:
    found = timed([], 20, 15.0, None)
    assert (found.first, found.decode, each(found)) == (0.0, 5.0, [])


@given(
    st.lists(st.tuples(st.integers(1, 5), st.floats(0.0, 2.0, width=32)), max_size=30),
    st.integers(0, 80),
    st.floats(0.0, 2.0, width=32),
    st.one_of(st.none(), st.builds(EngineSpan, st.floats(0.0, 5.0), st.floats(0.0, 5.0))),
    st.booleans(),
)
def test_there_are_as_many_times_as_tokens_and_their_sum_is_the_decoding(
    pieces: list[tuple[int, float]], output: int, rest: float, engine: EngineSpan | None, watched: bool
) -> None:
    moments = list(accumulate((gap for _, gap in pieces), initial=11.0))[1:]
    found = timed(
        [(tokens, moment) for (tokens, _), moment in zip(pieces, moments, strict=True)],
        output,
        (moments[-1] if moments else 11.0) + rest,
        engine,
        watched,
    )
    times = array("f", found.each)
    if not (watched and pieces) and engine is None:
        assert len(times) == 0
        return
    assert len(times) == output
    assert all(seconds >= 0 for seconds in times)
    assert sum(times) == pytest.approx(found.decode if output else 0.0, rel=1e-4, abs=1e-4)


def test_a_very_long_answer_is_cut() -> None:
    pieces = [(1, 11.0 + number) for number in range(MAX_TOKEN_TIMES + 5)]
    found = timed(pieces, MAX_TOKEN_TIMES + 6, pieces[-1][1], None)
    assert len(found.each) == 4 * MAX_TOKEN_TIMES
    assert found.decode == pytest.approx(MAX_TOKEN_TIMES + 5)


def test_an_engine_that_counts_without_end_costs_no_memory() -> None:
    found = timed([], 10**15, 12.0, EngineSpan(1.0, 1.0))
    assert len(each(found)) == MAX_TOKEN_TIMES
