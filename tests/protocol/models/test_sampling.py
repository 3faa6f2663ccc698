"""The six sampling defaults: their bounds, the result of a change, and that nothing else is accepted."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import strategies as st

from protocol.failures import Code, LemonbusError
from protocol.models import sampling
from protocol.models.sampling import SAMPLING_PARAMS
from tests.support.accepted_share import accepted_share

DOCUMENTED = {
    "temperature": 0.7,
    "top_p": 0.95,
    "top_k": 50,
    "min_length": 0,
    "max_length": 2048,
    "do_sample": True,
}


def test_parameters_that_were_not_set_have_the_documented_values() -> None:
    assert sampling.effective_params({}) == DOCUMENTED
    assert list(sampling.effective_params({"top_k": 3})) == list(DOCUMENTED)


@pytest.mark.parametrize(
    ("name", "value", "kept"),
    [
        ("temperature", 0, 0.0),
        ("temperature", 2, 2.0),
        ("top_p", 1, 1.0),
        ("top_k", 0, 0),
        ("top_k", 40.0, 40),
        ("min_length", 0, 0),
        ("max_length", 1, 1),
        ("do_sample", False, False),
        ("do_sample", None, None),
    ],
)
def test_good_values_are_converted_to_their_type(name: str, value: Any, kept: Any) -> None:
    found = sampling.check_params({name: value})
    assert found == {name: kept}
    assert type(found[name]) is type(kept)


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("temperature", "hot", "a number from 0 to 2, not a string"),
        ("temperature", -0.1, "not -0.1"),
        ("temperature", 2.1, "from 0 to 2"),
        ("temperature", float("nan"), "nan"),
        ("temperature", True, "not true"),
        ("top_p", 1.01, "from 0 to 1"),
        ("top_k", -1, "a whole number from 0"),
        ("top_k", 1.5, "not 1.5"),
        ("top_k", 2**31, "to 2147483647"),
        ("top_k", float("inf"), "not a number far out of range"),
        ("min_length", -1, "from 0"),
        ("max_length", 0, "from 1"),
        ("do_sample", 1, "true or false, not 1"),
        ("do_sample", [], "not a list"),
        ("temprature", 1, "there are: temperature"),
        ("\ud800", 1, "a field is no"),
    ],
)
def test_a_wrong_value_is_named(name: str, value: Any, expected: str) -> None:
    with pytest.raises(LemonbusError) as raised:
        sampling.check_params({name: value})
    failure = raised.value.failure
    assert (failure.code, failure.http_status) == (Code.INVALID_REQUEST, 400)
    assert failure.param == (name if name.isprintable() else "a field")
    assert expected in failure.message
    failure.message.encode()


def test_a_change_leaves_the_others_and_null_resets() -> None:
    kept = sampling.apply_change({}, {"max_length": 9, "temperature": 0.2})
    assert list(kept) == ["temperature", "max_length"], "in the documents' order"
    assert sampling.apply_change(kept, {"top_k": 1, "temperature": None}) == {"top_k": 1, "max_length": 9}
    assert sampling.apply_change(kept, dict.fromkeys(SAMPLING_PARAMS)) == {}


@pytest.mark.parametrize(
    ("current", "change", "param"),
    [
        ({}, {"min_length": 3000}, "min_length"),
        ({"min_length": 10}, {"max_length": 9}, "max_length"),
        ({"min_length": 3000, "max_length": 4000}, {"max_length": None}, "max_length"),
    ],
)
def test_min_length_is_not_more_than_max_length(current: dict[str, Any], change: dict[str, Any], param: str) -> None:
    with pytest.raises(LemonbusError) as raised:
        sampling.apply_change(current, change)
    assert raised.value.failure.param == param


JSON = st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.lists(st.integers(), max_size=2)


NUMBERS = st.floats(0, 2) | st.integers(0, 9) | st.booleans() | st.none()


@accepted_share(
    0.03,
    examples=200,
    change=st.dictionaries(st.sampled_from(list(SAMPLING_PARAMS)) | st.text(), JSON, max_size=2)
    | st.dictionaries(st.sampled_from(list(SAMPLING_PARAMS)), NUMBERS, min_size=1, max_size=2),
)
def test_any_value_is_within_bounds_or_the_callers_error(change: dict[str, Any]) -> bool:
    try:
        kept = sampling.apply_change({}, sampling.check_params(change))
    except LemonbusError as problem:
        assert problem.failure.code is Code.INVALID_REQUEST  # noqa: PT017 - either outcome is right
        return False
    assert sampling.check_params(kept) == kept
    assert kept.keys() == {name for name, value in change.items() if value is not None}
    return bool(kept)
