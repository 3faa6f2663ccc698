"""Every mistake in a body is a 4xx with its position."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from itertools import pairwise
from typing import Annotated

import gevent
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Meta

from gateway.api.openai.completions import ChatRequest, TextRequest, count_prompts
from gateway.api.openai.embeddings import EmbeddingRequest
from gateway.api.openai.text_completion import EchoedPrompt, text_completion
from gateway.http.bodies import body_decoding, body_errors
from protocol.failures import Code, LemonbusError

CHAT = b'{"messages":[{"role":"user","content":"hi"}]%b}'


@pytest.mark.parametrize(
    ("data", "value_text"),
    [
        (b'{"a": 1,}', "line 1 column 9"),
        (b'{"a": 1,\n  }', "line 2 column 3"),
        (b'{\n"\xc3\xa4": ?}', "line 2 column 6"),
        (b"", "line 1 column 1"),
        (b'{"a": 1', "line 1 column 8"),
        (b'{"a": NaN}', "line 1 column 7"),
        (b'{"a": Infinity}', "line 1 column 7"),
        (b'{"a": 1} x', "line 1 column 1"),
        (b'{"a": "\xff"}', "line 1 column 8"),
        (b'{"a": "\\ud800"}', "bad JSON"),
        (b'{"a": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", "nested too deeply"),
    ],
)
def test_bad_json_says_where(data: bytes, value_text: str) -> None:
    for read in (body_decoding.decode_object, lambda data: body_decoding.decode(data, EmbeddingRequest)):
        with pytest.raises(LemonbusError) as raised:
            read(data)
        assert raised.value.failure.code in (Code.INVALID_JSON, Code.INVALID_REQUEST)
        assert raised.value.failure.http_status == 400
    with pytest.raises(LemonbusError, match=value_text) as raised:
        body_decoding.decode_object(data)
    assert raised.value.failure.code == Code.INVALID_JSON


@pytest.mark.parametrize("data", [b"[]", b"1", b'"a"', b"null"])
def test_only_objects_are_taken(data: bytes) -> None:
    with pytest.raises(LemonbusError, match="object") as raised:
        body_decoding.decode_object(data)
    assert raised.value.failure.http_status == 400


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        (b',"temperature":"hot"', "temperature"),
        (b',"temperature":-1', "temperature"),
        (b',"temperature":1e999', "temperature"),
        (b',"top_p":1.5', "top_p"),
        (b',"repeat_penalty":0.5', "repeat_penalty"),
        (b',"repeat_penalty":2.5', "repeat_penalty"),
        (b',"n":0', "n"),
        (b',"n":1.5', "n"),
        (b',"max_tokens":99999999999', "max_tokens"),
        (b',"stream":"yes"', "stream"),
        (b',"model":3', "model"),
        (b',"stop":3', "stop"),
        (b',"stop":["a",3]', "stop[1]"),
        (b',"tools":{}', "tools"),
        (b',"logprobs":3', "logprobs"),
        (b',"messages":"hi"', "messages"),
        (b',"messages":[{"role":"user","content":3}]', "messages[0].content"),
        (b',"messages":[{"content":"hi"}]', "messages[0].role"),
        (b',"max_tokens":3,"max_completion_tokens":3', "max_tokens"),
        (b',"stop":["1","2","3","4","5"]', "stop"),
    ],
)
def test_a_wrong_field_is_named(fields: bytes, param: str) -> None:
    with pytest.raises(LemonbusError) as raised:
        body_decoding.decode(CHAT % fields, ChatRequest).check()
    failure = raised.value.failure
    assert failure.http_status == 400
    assert failure.param == param
    assert param.partition("[")[0] in failure.message


@pytest.mark.parametrize(
    ("data", "param"),
    [
        (b'{"model": "m", "ttl": 1e999}', "ttl"),
        (b'{"ttl": -1e999}', "ttl"),
        (b'{"options": {"a": [1, 2e308]}}', "options.a[1]"),
        (b'{"ttl": 1e999, }', ""),
        (b'{"ttl": 1e999, "text": "' + b"x" * 300_000 + b'"}', ""),
    ],
)
def test_a_number_out_of_range_is_named_if_its_field_can_be_found(data: bytes, param: str) -> None:
    with pytest.raises(LemonbusError, match="out of range") as raised:
        body_decoding.decode_object(data)
    assert (raised.value.failure.code, raised.value.failure.param) == (Code.INVALID_REQUEST, param)


def test_a_missing_field_is_named() -> None:
    for cls, field in ((ChatRequest, "messages"), (TextRequest, "prompt"), (EmbeddingRequest, "input")):
        with pytest.raises(LemonbusError) as raised:
            body_decoding.decode(b"{}", cls)
        assert (raised.value.failure.param, raised.value.failure.http_status) == (field, 400)


def test_unknown_fields_and_nulls_pass() -> None:
    request = body_decoding.decode(CHAT % b',"min_length":0,"device":"cpu","stop":null,"temperature":null', ChatRequest)
    request.check()
    assert request.stop is None


def test_lone_surrogates_hide_in_no_field() -> None:
    with pytest.raises(LemonbusError):
        body_decoding.decode(CHAT % b',"elsewhere":"\\udfff\\ud800"', ChatRequest)
    assert body_decoding.decode(CHAT % b',"elsewhere":"\\ud83c\\udf4b"', ChatRequest)


@given(st.binary(max_size=200))
def test_no_bytes_raise_anything_else(data: bytes) -> None:
    statuses = {400}
    with contextlib.suppress(LemonbusError):
        try:
            body_decoding.decode_object(data)
        except LemonbusError as problem:
            statuses.add(problem.failure.http_status)
            raise
    assert statuses == {400}


@pytest.mark.parametrize(
    ("value", "count"),
    [
        ("one", 1),
        (["one", "two"], 2),
        ([1, 2, 3], 1),
        ([[1, 2], [3]], 2),
        (["one", [1, 2]], 2),
    ],
)
def test_prompts_are_counted_as_slots(value: list[object] | str, count: int) -> None:
    assert count_prompts(value, "prompt") == count  # type: ignore[arg-type]


@pytest.mark.parametrize("value", [[], [1, "one"], ["one", []]])
def test_odd_prompts_are_refused(value: list[object]) -> None:
    with pytest.raises(LemonbusError, match="prompt"):
        count_prompts(value, "prompt")  # type: ignore[arg-type]


def test_completions_have_their_text_on_top() -> None:
    body = b'{"id":"1","choices":[{"text":"a","index":0},{"text":"b","index":1}]}\n'
    assert msgspec.json.decode(text_completion(body, None, 1)) == {
        "id": "1",
        "choices": [{"text": "a", "index": 0}, {"text": "b", "index": 1}],
        "text": "a",
    }


def test_an_echo_goes_before_its_own_choices() -> None:
    body = msgspec.json.encode({"choices": [{"text": str(index), "index": index} for index in (3, 0, 1, 2)]})
    echoed = msgspec.json.decode(text_completion(body, [EchoedPrompt("x"), EchoedPrompt("y")], 2))
    assert [choice["text"] for choice in echoed["choices"]] == ["y3", "x0", "x1", "y2"]
    assert echoed["text"] == "y3"


def test_other_greenlets_run_between_large_bodies(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []

    def slow_decode(_data: bytes, _cls: type) -> tuple[None, bytes]:
        seen.append("decode")
        time.sleep(0.01)
        return None, b""

    monkeypatch.setattr(body_decoding, "_decode", slow_decode)
    ticks = gevent.get_hub().loop.timer(0.001, 0.001)
    ticks.start(seen.append, "tick")
    large = b" " * 300_000
    gevent.joinall([gevent.spawn(body_decoding.decode, large, dict) for _ in range(5)], timeout=10, raise_error=True)
    ticks.close()
    assert seen.count("decode") == 5
    assert ("decode", "decode") not in list(pairwise(seen))


def test_work_on_large_bodies_goes_on_one_by_one_and_others_run_between_its_steps() -> None:
    seen: list[str] = []

    def work(name: str, size: int) -> None:
        def steps(pause: Callable[[], None]) -> None:
            for _ in range(3):
                pause()
                seen.append(name)
                time.sleep(0.01)

        body_decoding.in_steps(size, {"REMOTE_ADDR": name}, steps)

    ticks = gevent.get_hub().loop.timer(0.001, 0.001)
    ticks.start(seen.append, "tick")
    gevent.joinall([gevent.spawn(work, name, 300_000) for name in "ab"], timeout=10, raise_error=True)
    ticks.close()
    assert [name for name in seen if name != "tick"] == [*"aaabbb"]
    assert not any(one == other != "tick" for one, other in pairwise(seen))
    seen.clear()
    work("small", 1_000)
    assert seen == ["small"] * 3


@pytest.mark.parametrize("item", [b'{"a":0},', b"[],", b"0,"])
def test_a_large_body_of_tiny_values_is_refused(item: bytes) -> None:
    with pytest.raises(LemonbusError) as caught:
        body_decoding.decode_object(b'{"messages":[%b0]}' % (item * 2_000_001))
    assert caught.value.failure.http_status == 400


class SampleBody(msgspec.Struct):
    n: int | None = None
    share: float | int | None = None
    name: str = ""
    words: Annotated[list[str], Meta(max_length=2)] = []
    one_or_many: str | list[str] | None = None
    extra: dict[str, int] | None = None
    stream: bool = False
    least: Annotated[int, Meta(ge=1)] = 1


@pytest.mark.parametrize(
    ("text", "rewritten"),
    [
        ("Expected `int | null`, got `str`", "expected integer or null, got string"),
        ("Expected `int | float | null`, got `bool`", "expected number or null, got boolean"),
        ("Expected `str | array | null`, got `int`", "expected string, array or null, got integer"),
        ("Expected `int` >= 1", "expected integer >= 1"),
        ("Invalid enum value 'str'", "invalid enum value 'str'"),
        ("", ""),
    ],
)
def test_types_have_their_json_names(text: str, rewritten: str) -> None:
    assert body_errors.describe_type_error(text) == rewritten


@pytest.mark.parametrize(
    ("field", "message"),
    [
        (b'"n":"1"', "`n`: expected integer or null, got string"),
        (b'"n":1.5', "`n`: expected integer or null, got number"),
        (b'"share":"x"', "`share`: expected number or null, got string"),
        (b'"words":[null]', "`words[0]`: expected string, got null"),
        (b'"words":["a",1]', "`words[1]`: expected string, got integer"),
        (b'"words":["a","b","c"]', "`words`: expected array of length <= 2"),
        (b'"one_or_many":true', "`one_or_many`: expected string, array or null, got boolean"),
        (b'"extra":[]', "`extra`: expected object or null, got array"),
        (b'"stream":{}', "`stream`: expected boolean, got object"),
        (b'"least":0', "`least`: expected integer >= 1"),
    ],
)
def test_a_wrong_field_is_reported_with_json_types(field: bytes, message: str) -> None:
    with pytest.raises(LemonbusError) as raised:
        body_decoding.decode(b"{%b}" % field, SampleBody)
    assert str(raised.value) == message


def test_a_body_that_is_not_an_object_is_reported_with_json_types() -> None:
    with pytest.raises(LemonbusError) as raised:
        body_decoding.decode_object(b"[]")
    assert str(raised.value) == "the body must be a JSON object: expected object, got array"
