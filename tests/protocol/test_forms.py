"""Forms with files: written, read, extended."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol import forms
from protocol.forms import Part

names = st.text(st.characters(codec="utf-8", exclude_characters='\\"%\0', exclude_categories=["C"]), max_size=20)


@given(st.lists(st.tuples(names, st.binary(max_size=200)), max_size=5))
def test_what_is_written_is_read(fields: list[tuple[str, bytes]]) -> None:
    parts = [Part(name, data) for name, data in fields]
    body = forms.written(parts)
    boundary = forms.boundary_of(body)
    if parts:
        assert forms.read(boundary, body) == parts
        more = forms.extended(body, [Part("first", b"1")])
        assert forms.boundary_of(more) == boundary
        assert forms.read(boundary, more) == [Part("first", b"1"), *parts]


def test_files_have_plain_names() -> None:
    body = forms.written([Part("file", b"x", '../a "b"\r\nX: 1.wav')])
    [part] = forms.read(forms.boundary_of(body), body)
    assert part == Part("file", b"x", ".._a_b_X_1.wav")


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
        assert forms.boundary_in(content_type) == boundary
    else:
        with pytest.raises(ValueError, match=r"boundary|not multipart"):
            forms.boundary_in(content_type)


WHOLE = forms.written([Part("model", b"m"), Part("file", b"x" * 50, "a.wav")], "edge")


@pytest.mark.parametrize("size", range(0, len(WHOLE) - 2, 7))
def test_half_a_form_is_none(size: int) -> None:
    with pytest.raises(ValueError, match=r"."):
        forms.read("edge", WHOLE[:size])


@given(st.binary(max_size=100), st.integers(0, len(WHOLE)))
def test_any_bytes_are_read_or_refused(noise: bytes, place: int) -> None:
    for body in (noise, WHOLE[:place] + noise + WHOLE[place:], b"--edge\r\n" + noise):
        with contextlib.suppress(ValueError):
            forms.read("edge", body)
        with contextlib.suppress(ValueError):
            forms.extended(body, [Part("a", b"b")])


def test_too_many_fields() -> None:
    with pytest.raises(ValueError, match=r"."):
        forms.read("edge", forms.written([Part("a", b"")] * (forms.MOST_PARTS + 1), "edge"))
