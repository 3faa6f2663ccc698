"""Messages about a wrong field use JSON's names of types, and no Python."""

from __future__ import annotations

from typing import Annotated

import msgspec
import pytest
from msgspec import Meta

from gateway.http.bodies import body_decoding
from gateway.http.errors import error_messages
from protocol.failures import LemonbusError


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
    assert error_messages.describe_type_error(text) == rewritten


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


def test_a_body_that_is_no_object_is_reported_with_json_types() -> None:
    with pytest.raises(LemonbusError) as raised:
        body_decoding.decode_object(b"[]")
    assert str(raised.value) == "the body must be a JSON object: expected object, got array"
