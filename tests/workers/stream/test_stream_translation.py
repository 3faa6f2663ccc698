from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workers.stream.sse_filter import SseFilter, summaries_of

HEAD = ',"created":1,"id":"x","model":"alias","system_fingerprint":"b","object":"chat.completion.chunk"'
TIMINGS = ',"timings":{"cache_n":3,"predicted_ms":2.5}'


def chat(delta: str, finish: str = "null", more: str = "") -> bytes:
    return f'data: {{"choices":[{{"finish_reason":{finish},"index":0,"delta":{delta}}}]{HEAD}{more}}}\n\n'.encode()


def text(content: str, finish: str = "null", more: str = "") -> bytes:
    choice = f'{{"text":"{content}","index":0,"logprobs":null,"finish_reason":{finish}}}'
    return f'data: {{"choices":[{choice}],"model":"alias"{more}}}\n\n'.encode()


ROLE = chat('{"role":"assistant","content":null}')
PROGRESS = chat('{"role":"assistant","content":null}', more=',"prompt_progress":{"total":9,"processed":4}')
FIRST, PROGRESS_FIRST = (event.replace(b'"content":null', b'"content":""') for event in (ROLE, PROGRESS))
"""What clients get for these: OpenAI's first chunk has an empty text."""
ONE, TWO = chat('{"content":"one"}'), chat('{"content":"two"}')
FINISH = chat("{}", '"stop"')
FINISH_TIMED = chat("{}", '"stop"', TIMINGS)
COUNTS = ',"usage":{"completion_tokens":2,"prompt_tokens":7}'
USAGE = f'data: {{"choices":[]{HEAD}{COUNTS}{TIMINGS}}}\n\n'.encode()
END = b"data: [DONE]\n\n"
TEXT_FINISH = text("", '"length"', COUNTS + TIMINGS)
TEXT_FINISH_ALONE = text("", '"length"', TIMINGS)
TEXT_USAGE = (
    b'data: {"choices":[],"model":"alias","usage":{"completion_tokens":2,"prompt_tokens":7,"total_tokens":9,'
    b'"prompt_tokens_details":{"cached_tokens":0}}}\n\n'
)
TRICK = chat('{"content":"\\"usage\\":{ \\"choices\\":[] [DONE] \\"prompt_progress\\":{ \\"model\\":\\"ours\\""}')


def feed_in_pieces(stream: SseFilter, data: bytes, size: int) -> tuple[bytes, int, bool]:
    out, tokens, alive = b"", 0, False
    for start in range(0, len(data), size):
        got = stream.feed(data[start : start + size])
        out, tokens, alive = out + got.data, tokens + got.tokens, alive or got.alive
    return out, tokens, alive


CASES: list[tuple[str, dict[str, Any], list[bytes], list[bytes], int]] = [
    ("passes through", {}, [ROLE, ONE, TWO], [FIRST, ONE, TWO], 2),
    ("progress is removed", {}, [PROGRESS, PROGRESS, ROLE, ONE], [FIRST, ONE], 1),
    ("progress stays if requested", {"progress": True}, [PROGRESS, ROLE, ONE], [PROGRESS_FIRST, FIRST, ONE], 1),
    ("timings move into the finish", {}, [ONE, FINISH, USAGE, END], [ONE, FINISH_TIMED], 1),
    ("usage stays if requested", {"usage": True}, [ONE, FINISH, USAGE, END], [ONE, FINISH, USAGE], 1),
    ("a finish without usage after it", {}, [ONE, FINISH, END], [ONE, FINISH], 1),
    ("two choices", {}, [FINISH, USAGE, ONE, FINISH, USAGE, END], [FINISH_TIMED, ONE, FINISH_TIMED], 1),
    ("usage in a finish is removed", {}, [text("a"), TEXT_FINISH, END], [text("a"), TEXT_FINISH_ALONE], 1),
    ("usage in a finish moves behind it", {"usage": True}, [TEXT_FINISH, END], [TEXT_FINISH_ALONE, TEXT_USAGE], 0),
    ("text of the model is not taken for a key", {}, [TRICK, ONE], [TRICK, ONE], 2),
    ("comments are removed", {}, [b": ping\n\n", ONE, b":\n\n", TWO], [ONE, TWO], 2),
]


@pytest.mark.parametrize(("_name", "options", "sent", "passed", "tokens"), CASES, ids=[case[0] for case in CASES])
@pytest.mark.parametrize("size", [1, 7, 100, 100_000])
def test_what_is_passed_on(
    _name: str, options: dict[str, bool], sent: list[bytes], passed: list[bytes], tokens: int, size: int
) -> None:
    stream = SseFilter(options.get("usage", False), options.get("progress", False))
    out, count, _ = feed_in_pieces(stream, b"".join(sent), size)
    assert out == b"".join(passed)
    assert count == tokens
    assert stream.finished == (END in sent)
    assert stream.error is None


@pytest.mark.parametrize("together", [True, False])
def test_the_first_chunk_of_a_message_has_an_empty_text(together: bool) -> None:
    stream = SseFilter(usage=False, progress=False)
    sent = [ROLE + ONE] if together else [ROLE, ONE]
    assert b"".join(stream.feed(piece).data for piece in sent) == FIRST + ONE


def test_progress_shows_life() -> None:
    stream = SseFilter(usage=False, progress=False)
    assert stream.feed(PROGRESS).alive
    assert not stream.feed(ONE).alive


@pytest.mark.parametrize("size", [1, 7, 100_000])
def test_the_time_of_another_node_becomes_that_of_the_head(size: int) -> None:
    sent = ONE + chat('{"content":"\\"created\\":1,"}') + FINISH + END
    plain, later = (SseFilter(usage=False, progress=False, clock_shift=shift) for shift in (0, 3600))
    before, after = (feed_in_pieces(stream, sent, size)[0] for stream in (plain, later))
    assert before.count(b'"created":1,') == 3
    assert after == before.replace(b'"created":1,', b'"created":3601,')


def test_the_model_has_the_name_that_the_client_used() -> None:
    stream = SseFilter(usage=False, progress=False, alias="alias", model='the "large" one')
    out, _, _ = feed_in_pieces(stream, ROLE + ONE + TRICK + FINISH + USAGE, 100_000)
    for event in out.split(b"\n\n")[:-1]:
        assert json.loads(event[6:])["model"] == 'the "large" one'
    assert b'\\"model\\":\\"ours\\"' in out


def test_the_build_is_written_where_the_engine_does_not_know_it() -> None:
    stream = SseFilter(usage=False, progress=False, builds=("b", "b11549"))
    out, _, _ = feed_in_pieces(stream, ROLE + ONE + FINISH + USAGE, 100_000)
    for event in out.split(b"\n\n")[:-1]:
        assert json.loads(event[6:])["system_fingerprint"] == "b11549"


@pytest.mark.parametrize(
    "event", [b'data: {"error":{"code":500,"message":"no"}}\n\n', b'error: {"code":500,"message":"no"}\n\n']
)
def test_an_error_in_the_stream(event: bytes) -> None:
    stream = SseFilter(usage=False, progress=False)
    stream.feed(ONE + event)
    assert stream.error is not None
    assert json.loads(stream.error)
    assert not stream.finished


def test_counts() -> None:
    stream = SseFilter(usage=False, progress=False)
    feed_in_pieces(stream, ONE + FINISH + USAGE + END, 50)
    (summary,) = stream.summaries()
    assert summary.usage is not None
    assert summary.timings is not None
    assert (summary.usage.prompt_tokens, summary.usage.completion_tokens, summary.timings.cache_n) == (7, 2, 3)
    assert (
        summaries_of(
            [b"nonsense", b'{"usage":7}', b'{"usage":{"completion_tokens":"\xff"}}', b'{"a":' + b"[" * 100_000]
        )
        == []
    )


@given(st.lists(st.sampled_from([ROLE, ONE, TWO, PROGRESS, TRICK, FINISH, USAGE]), max_size=30), st.data())
def test_cuts_make_no_difference(events: list[bytes], data: st.DataObject) -> None:
    whole = b"".join(events) + END
    expected = feed_in_pieces(SseFilter(usage=False, progress=False), whole, len(whole))[:2]
    cuts = sorted(data.draw(st.lists(st.integers(0, len(whole)), max_size=20)))
    stream = SseFilter(usage=False, progress=False)
    out, tokens = b"", 0
    for start, end in zip([0, *cuts], [*cuts, len(whole)], strict=True):
        got = stream.feed(whole[start:end])
        out, tokens = out + got.data, tokens + got.tokens
    assert (out, tokens) == expected
    assert stream.finished == (FINISH in events)
