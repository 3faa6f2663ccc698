"""What libraries say becomes what clients know: JSON's names of types, and no Python."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
import pytest
from gunicorn.http import errors
from msgspec import Meta

from gateway.http import bodies, error_messages
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
    ("original", "becomes"),
    [
        ("Expected `int | null`, got `str`", "expected integer or null, got string"),
        ("Expected `int | float | null`, got `bool`", "expected number or null, got boolean"),
        ("Expected `str | array | null`, got `int`", "expected string, array or null, got integer"),
        ("Expected `int` >= 1", "expected integer >= 1"),
        ("Invalid enum value 'str'", "invalid enum value 'str'"),
        ("", ""),
    ],
)
def test_types_are_called_what_json_calls_them(original: str, becomes: str) -> None:
    assert error_messages.describe_type_error(original) == becomes


@pytest.mark.parametrize(
    ("field", "message"),
    [
        (b'"n":"1"', "`n`: expected integer or null, got string"),
        (b'"n":1.5', "`n`: expected integer or null, got number"),
        (b'"share":"x"', "`share`: expected number or null, got string"),
        (b'"name":null', "`name`: expected string, got null"),
        (b'"words":["a",1]', "`words[1]`: expected string, got integer"),
        (b'"words":["a","b","c"]', "`words`: expected array of length <= 2"),
        (b'"one_or_many":true', "`one_or_many`: expected string, array or null, got boolean"),
        (b'"extra":[]', "`extra`: expected object or null, got array"),
        (b'"stream":{}', "`stream`: expected boolean, got object"),
        (b'"least":0', "`least`: expected integer >= 1"),
    ],
)
def test_a_wrong_field_is_told_in_those_words(field: bytes, message: str) -> None:
    with pytest.raises(LemonbusError) as raised:
        bodies.decode(b"{%b}" % field, SampleBody)
    assert str(raised.value) == message


def test_a_body_that_is_no_object_is_told_in_those_words() -> None:
    with pytest.raises(LemonbusError) as raised:
        bodies.decode_object(b"[]")
    assert str(raised.value) == "the body must be a JSON object: expected object, got array"


@pytest.mark.parametrize(
    ("problem", "value_text"),
    [
        (errors.InvalidChunkSize(b"-1"), "the size of a chunk must be a hexadecimal number, not '-1'"),
        (errors.InvalidChunkSize(b"\xff"), "the size of a chunk must be a hexadecimal number, not '\\xff'"),
        (errors.ChunkMissingTerminator(b"no"), "a chunk does not end where its size says"),
        (errors.InvalidHTTPVersion((9, 9)), "this version of HTTP is not spoken here"),
        (errors.InvalidRequestLine(b"nonsense"), "Invalid HTTP request line: 'nonsense'"),
        (errors.InvalidHeader("CONTENT-LENGTH"), "Invalid HTTP Header: 'CONTENT-LENGTH'"),
    ],
)
def test_the_parser_speaks_no_python(problem: Any, value_text: str) -> None:
    assert error_messages.describe_parse_error(problem) == value_text
