"""What is kept of the memory that engines took, and how it corrects the next estimate."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from protocol.models.memory import HOST, MemoryEstimate, PlaceNeed
from protocol.models.nodes import HEAD
from protocol.models.recipes import ModelSpec
from supervisor.models.measured_memory import FAILED_LOAD_COUNTS_S, FILE, LEAST_CHANGE, MAX_RECORDS, MeasuredMemory

SPEC = ModelSpec("m", "o/m", "llamacpp", "cpu", "llm", "/m.gguf", options={"slots": 2, "ctx_size": 4096}, size=100)
CARD = "0000:01:00.0"
MIB = 1 << 20
ESTIMATE = MemoryEstimate(
    {HOST: PlaceNeed(900 * MIB, 2.0, 500 * MIB, 100 * MIB), CARD: PlaceNeed(50 * MIB)}, context=10
)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "state" / FILE


def test_a_measurement_is_valid_on_its_node_alone(file: Path) -> None:
    """Both have a host, and a card in the same slot."""
    measured = MeasuredMemory(file)
    measured.note(SPEC, "gpu1", {HOST: 30 * MIB, CARD: MIB})
    for each in (measured, MeasuredMemory(file)):
        assert each.corrected(SPEC, "gpu1", ESTIMATE).measured
        assert not any(each.corrected(SPEC, node, ESTIMATE).measured for node in ("gpu2", HEAD))
    measured.note_failed(SPEC, "gpu2", {HOST: 500 * MIB})
    assert measured.corrected(SPEC, "gpu1", ESTIMATE).need()[HOST] == 930 * MIB + 20


def test_an_estimate_is_corrected_by_the_last_measurement(file: Path) -> None:
    measured = MeasuredMemory(file)
    assert measured.corrected(SPEC, HEAD, ESTIMATE) is ESTIMATE
    measured.note(SPEC, HEAD, {HOST: 30 * MIB})
    measured.note(SPEC, HEAD, {CARD: -5 * MIB})
    for each in (measured, MeasuredMemory(file)):
        corrected = each.corrected(SPEC, HEAD, ESTIMATE)
        assert corrected.measured
        assert corrected.need() == {HOST: 930 * MIB + 20, CARD: 45 * MIB}
        assert corrected.parts["measured difference"] == 25 * MIB
    measured.note(SPEC, HEAD, {HOST: -20 * MIB})
    assert measured.corrected(SPEC, HEAD, ESTIMATE).need()[HOST] == 880 * MIB + 20


def test_an_engine_that_ended_before_it_was_ready_corrects_only_upwards(file: Path) -> None:
    measured = MeasuredMemory(file)
    for size, kept in ((30, 30), (20, 30), (40, 40)):
        measured.note_failed(SPEC, HEAD, {HOST: size * MIB})
        assert measured.corrected(SPEC, HEAD, ESTIMATE).need()[HOST] == (900 + kept) * MIB + 20
    measured.note(SPEC, HEAD, {HOST: 10 * MIB})
    assert measured.corrected(SPEC, HEAD, ESTIMATE).need()[HOST] == 910 * MIB + 20, "it was ready"
    measured.note_failed(SPEC, HEAD, {HOST: 5 * MIB})
    assert measured.corrected(SPEC, HEAD, ESTIMATE).need()[HOST] == 910 * MIB + 20, "a larger measurement stays"


def test_a_failed_load_counts_for_a_limited_time_and_is_not_in_the_file(file: Path) -> None:
    now = 0.0
    measured = MeasuredMemory(file, clock=lambda: now)
    measured.note(SPEC, HEAD, {HOST: 10 * MIB, CARD: MIB})
    measured.note_failed(SPEC, HEAD, {HOST: 10_000 * MIB})
    assert measured.corrected(SPEC, HEAD, ESTIMATE).need() == {HOST: 10_900 * MIB + 20, CARD: 51 * MIB}
    now = FAILED_LOAD_COUNTS_S
    for each in (measured, MeasuredMemory(file)):
        assert each.corrected(SPEC, HEAD, ESTIMATE).need() == {HOST: 910 * MIB + 20, CARD: 51 * MIB}
    measured.note_failed(SPEC, HEAD, {HOST: 20 * MIB})
    assert measured.corrected(SPEC, HEAD, ESTIMATE).need()[HOST] == 920 * MIB + 20, "the former one has ended"


def test_failed_loads_that_are_kept_are_limited(file: Path) -> None:
    measured = MeasuredMemory(file)
    specs = [replace(SPEC, path=f"/{number}.gguf") for number in range(MAX_RECORDS + 1)]
    for spec in specs:
        measured.note_failed(spec, HEAD, {HOST: MIB})
    assert [measured.corrected(spec, HEAD, ESTIMATE).measured for spec in specs[:2]] == [False, True]


def test_an_estimate_never_gets_lower_than_what_the_engine_may_yet_touch(file: Path) -> None:
    measured = MeasuredMemory(file)
    measured.note(SPEC, HEAD, {HOST: -800 * MIB})
    assert measured.corrected(SPEC, HEAD, ESTIMATE).places[HOST].fixed == 600 * MIB


@pytest.mark.parametrize(
    ("changed", "same"),
    [
        ({"options": {"slots": 2, "ctx_size": -1}}, True),
        ({"options": {"ctx_size": 4096, "slots": 2}}, True),
        ({"name": "other", "labels": ["x"]}, True),
        ({"options": {"slots": 3, "ctx_size": 4096}}, False),
        ({"options": {"slots": 2, "llamacpp_args": "-ub 64"}}, False),
        ({"path": "/n.gguf"}, False),
        ({"size": 101}, False),
        ({"mmproj": "/p.gguf"}, False),
        ({"devices": ["1"]}, False),
        ({"backend": "system"}, False),
        ({"env": {"A": "b"}}, False),
    ],
)
def test_what_a_measurement_is_valid_for(file: Path, changed: dict[str, object], same: bool) -> None:
    measured = MeasuredMemory(file)
    measured.note(SPEC, HEAD, {HOST: MIB})
    assert measured.corrected(replace(SPEC, **changed), HEAD, ESTIMATE).measured == same


def test_a_small_change_is_not_written(file: Path) -> None:
    measured = MeasuredMemory(file)
    measured.note(SPEC, HEAD, {HOST: 10 * MIB})
    before = file.read_bytes()
    measured.note(SPEC, HEAD, {HOST: 10 * MIB + LEAST_CHANGE - 1})
    assert file.read_bytes() == before
    measured.note(SPEC, HEAD, {HOST: 12 * MIB})
    assert file.read_bytes() != before


def test_the_records_that_were_not_used_for_the_longest_time_are_dropped(file: Path) -> None:
    measured = MeasuredMemory(file, lambda _draft, _path, done: done(None))
    specs = [replace(SPEC, path=f"/{number}.gguf") for number in range(MAX_RECORDS + 1)]
    for spec in specs[:-1]:
        measured.note(spec, HEAD, {HOST: MIB})
    assert measured.corrected(specs[0], HEAD, ESTIMATE).measured
    measured.note(specs[-1], HEAD, {HOST: MIB})
    assert [measured.corrected(spec, HEAD, ESTIMATE).measured for spec in specs[:3]] == [True, False, True]


@pytest.mark.parametrize("content", ["[]", "{", '{"x": 1}', '{"x": {"model": "m", "differences": {"host": "y"}}}'])
def test_a_broken_file_is_moved_aside(file: Path, content: str) -> None:
    file.parent.mkdir()
    file.write_text(content)
    measured = MeasuredMemory(file)
    (problem,) = measured.problems
    assert FILE in problem
    assert "moved aside" in problem
    measured.note(SPEC, HEAD, {HOST: MIB})
    assert MeasuredMemory(file).corrected(SPEC, HEAD, ESTIMATE).measured


def test_a_file_that_cannot_be_written_is_a_problem(tmp_path: Path) -> None:
    (tmp_path / "state").touch()
    measured = MeasuredMemory(tmp_path / "state" / FILE)
    measured.problems.clear()
    measured.note(SPEC, HEAD, {HOST: MIB})
    assert measured.problems == [f"{FILE} could not be written: File exists"]
    assert measured.corrected(SPEC, HEAD, ESTIMATE).measured
