"""Forms with files: written, read, extended."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.wire import form_data
from protocol.wire.form_data import FormPart
from tests.support.accepted_share import accepted_share

names = st.text(st.characters(codec="utf-8", exclude_characters='\\"%\0', exclude_categories=["C"]), max_size=20)


@given(st.lists(st.tuples(names, st.binary(max_size=200)), max_size=5))
def test_what_is_written_is_read(fields: list[tuple[str, bytes]]) -> None:
    parts = [FormPart(name, data) for name, data in fields]
    body = form_data.encode(parts)
    boundary = form_data.boundary_from_body(body)
    if parts:
        assert form_data.parse(boundary, body) == parts
        more = form_data.prepend_parts(body, [FormPart("first", b"1")])
        assert form_data.boundary_from_body(more) == boundary
        assert form_data.parse(boundary, more) == [FormPart("first", b"1"), *parts]


def test_files_have_plain_names() -> None:
    body = form_data.encode([FormPart("file", b"x", '../a "b"\r\nX: 1.wav')])
    [part] = form_data.parse(form_data.boundary_from_body(body), body)
    assert part == FormPart("file", b"x", ".._a_b_X_1.wav")


@pytest.mark.parametrize(
    ("content_type", "boundary"),
    [
        ("multipart/form-data; boundary=abc", "abc"),
        ('Multipart/Form-Data; charset=utf-8; boundary="a b"', "a b"),
        ("multipart/form-data", ""),
        ("application/json; boundary=abc", ""),
        ("", ""),
    ],
)
def test_boundaries(content_type: str, boundary: str) -> None:
    if boundary:
        assert form_data.boundary_from_content_type(content_type) == boundary
    else:
        with pytest.raises(ValueError, match=r"boundary|not multipart"):
            form_data.boundary_from_content_type(content_type)


WHOLE = form_data.encode([FormPart("model", b"m"), FormPart("file", b"x" * 50, "a.wav")], "edge")


@pytest.mark.parametrize("size", range(0, len(WHOLE) - 2, 7))
def test_an_incomplete_form_is_refused(size: int) -> None:
    with pytest.raises(ValueError, match=r"."):
        form_data.parse("edge", WHOLE[:size])


@accepted_share(0.1, noise=st.binary(max_size=9), position=st.integers(0, len(WHOLE)))
def test_any_bytes_are_read_or_refused(noise: bytes, position: int) -> bool:
    accepted = False
    for body in (noise, WHOLE[:position] + noise + WHOLE[position:], b"--edge\r\n" + noise):
        with contextlib.suppress(ValueError):
            accepted |= bool(form_data.parse("edge", body))
        with contextlib.suppress(ValueError):
            form_data.prepend_parts(body, [FormPart("a", b"b")])
    return accepted


def test_too_many_fields() -> None:
    with pytest.raises(ValueError, match=r"."):
        form_data.parse("edge", form_data.encode([FormPart("a", b"")] * (form_data.MAX_PARTS + 1), "edge"))
