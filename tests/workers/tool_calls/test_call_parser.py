"""Tool calls in the text of an answer, in the formats of common families of models, wherever the text is split."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.calls import count_calls
from tests.support.properties import examples
from workers.tool_calls.call_parser import MAX_SPACE, CallArguments, CallEvent, CallStart, TextPiece, ToolCallParser
from workers.tool_calls.formats import (
    FORMATS,
    HERMES,
    LLAMA_3,
    MISTRAL,
    PHI_4_MINI,
    ToolCallFormat,
    format_of_template,
)

Calls = list[tuple[str, str]]
F, G = '{"name": "f", "arguments": {"a": 1}}', '{"name":"g","arguments":{"b":[{"c":"}"}]}}'
F_CALL, G_CALL = ("f", '{"a": 1}'), ("g", '{"b":[{"c":"}"}]}')


def parsed(form: ToolCallFormat, pieces: list[str], most: int = 99) -> tuple[str, Calls]:
    """Return the text and the calls; each call must be well ordered."""
    numbers = itertools.count()
    parser = ToolCallParser(form, {"f", "g"}, lambda: f"id-{next(numbers)}", most)
    events: list[CallEvent] = [event for piece in pieces for event in parser.feed(piece)]
    events += parser.finish()
    text, calls = "", []
    for event in events:
        match event:
            case TextPiece(piece):
                assert piece
                text += piece
            case CallStart(number, identity, name):
                assert (number, identity) == (len(calls), f"id-{number}")
                calls.append((name, ""))
            case CallArguments(number, piece):
                assert (number, bool(piece)) == (len(calls) - 1, True)
                calls[number] = (calls[number][0], calls[number][1] + piece)
    return text, calls


CASES: list[tuple[ToolCallFormat, str, str, Calls]] = [
    (HERMES, f"<tool_call>\n{F}\n</tool_call>", "", [F_CALL]),
    (
        HERMES,
        f"Let me look. \n<tool_call>{F}</tool_call>\n<tool_call>{G}</tool_call>\n",
        "Let me look.",
        [F_CALL, G_CALL],
    ),
    (HERMES, f"<tool_call>{F}</tool_call> Done. ", "Done. ", [F_CALL]),
    (HERMES, f"<tool_call>{F}", "", [F_CALL]),
    (HERMES, f"<tool_call>{F}</tool_c", "", [F_CALL]),
    (HERMES, f"<tool_call>{F}<tool_call>{G}", "", [F_CALL, G_CALL]),
    (HERMES, '<tool_call>{"arguments": {"a": 1}, "name": "f"}</tool_call>', "", [F_CALL]),
    (HERMES, '<tool_call>{"id": 7, "x": [1, "]"], "name": "f", "arguments": {"a": 1}, "y": null}', "", [F_CALL]),
    (HERMES, '<tool_call>{"name": "f", "arguments": "{\\"a\\": 1}"}</tool_call>', "", [F_CALL]),
    (HERMES, '<tool_call>{"name": "f"}</tool_call>', "", [("f", "{}")]),
    (HERMES, '<tool_call>{"name": "f", "arguments": {"a": "cut o', "", [("f", '{"a": "cut o')]),
    (
        HERMES,
        '<tool_call>{"name": "f", "arguments": {"a": "\\"}<tool_call>"}}</tool_call>',
        "",
        [("f", '{"a": "\\"}<tool_call>"}')],
    ),
    (HERMES, f'<tool_call>{{"<tool_call>{{"<tool_call>{F}', '<tool_call>{"<tool_call>{"', [F_CALL]),
    (MISTRAL, f"[TOOL_CALLS][{F}, {G}]", "", [F_CALL, G_CALL]),
    (MISTRAL, f"[TOOL_CALLS] {F}", "", [F_CALL]),
    (MISTRAL, f"[TOOL_CALLS] [{F}] and then", "and then", [F_CALL]),
    (MISTRAL, f'[TOOL_CALLS][{F}, {{"name": "no"}}]', ', {"name": "no"}]', [F_CALL]),
    (PHI_4_MINI, f"<|tool_call|>[{F}]<|/tool_call|>", "", [F_CALL]),
    (PHI_4_MINI, f"functools[{F},{G}]", "", [F_CALL, G_CALL]),
    (LLAMA_3, '{"name": "f", "parameters": {"a": 1}}', "", [F_CALL]),
    (
        LLAMA_3,
        f'\n<|python_tag|>{{"type": "function", "name": "f", "parameters": {{"a": 1}}}}; {G}',
        "",
        [F_CALL, G_CALL],
    ),
]
TEXTS_LIKE_CALLS = [
    (HERMES, "<tool_call>{}</tool_call>"),
    (HERMES, "<tool_call> not JSON </tool_call>"),
    (HERMES, '<tool_call>{"name": "unknown", "arguments": {}}</tool_call>'),
    (HERMES, '<tool_call>{"name": "f", "arguments": [1]}</tool_call>'),
    (HERMES, '<tool_call>{"name": "f", "arguments": "text"}</tool_call>'),
    (HERMES, '<tool_call>{"name": ["f"], "arguments": {}}</tool_call>'),
    (HERMES, '<tool_call>{"name": "f", arguments: {}}</tool_call>'),
    (HERMES, '<tool_call>{"name": "f", "arg'),
    (HERMES, "a < b, <tool> and <tool_call"),
    (HERMES, f"{F} without a marker"),
    (MISTRAL, "[TOOL_CALLS] are written so. "),
    (MISTRAL, "[TOOL_CALLS][[[1]]]"),
    (PHI_4_MINI, "Python's functools [are] useful"),
    (LLAMA_3, 'The answer is {"name": "f", "parameters": {}}'),
    (LLAMA_3, '{"name": "f"}'),
    (LLAMA_3, '{"city": "Paris"} '),
    (LLAMA_3, "<|python_tag|>print(1)"),
    (LLAMA_3, " \n"),
]


@pytest.mark.parametrize(("form", "answer", "text", "calls"), CASES)
def test_calls_in_an_answer(form: ToolCallFormat, answer: str, text: str, calls: Calls) -> None:
    assert parsed(form, [answer]) == (text, calls)
    assert parsed(form, list(answer)) == (text, calls)


@pytest.mark.parametrize(("form", "answer"), TEXTS_LIKE_CALLS)
def test_a_text_that_only_looks_like_a_call_stays_text(form: ToolCallFormat, answer: str) -> None:
    assert parsed(form, [answer]) == (answer, [])


def _pieces(form: ToolCallFormat) -> st.SearchStrategy[str]:
    """Texts made of parts of calls, in any order."""
    parts = [*form.markers, *form.markers, F, G, "{", "}", "[", "]", ",", ";", '"', "\\", " ", "\n", '"name": "f"', "é"]
    parts += ['{"name": "g", "arguments": {', '"parameters": {}', "text", form.openers[0][:4]]
    return st.lists(st.sampled_from(parts), max_size=12).map("".join)


@examples(150)
@given(st.sampled_from(FORMATS).flatmap(lambda form: st.tuples(st.just(form), _pieces(form))), st.data())
def test_any_cut_of_an_answer_yields_the_same(case: tuple[ToolCallFormat, str], data: st.DataObject) -> None:
    form, answer = case
    cuts = sorted(data.draw(st.lists(st.integers(0, len(answer)), max_size=6)))
    pieces = [answer[start:end] for start, end in itertools.pairwise([0, *cuts, len(answer)])]
    whole = parsed(form, [answer])
    assert parsed(form, pieces) == whole == parsed(form, list(answer))
    text, calls = whole
    if not calls:
        assert text == answer, "nothing is lost where there is no call"
    assert _is_subsequence(text, answer)


@examples(60)
@given(st.sampled_from(FORMATS), st.text("abc<{[ \n", max_size=12), st.data())
def test_no_part_of_a_marker_is_shown_before_a_call(form: ToolCallFormat, before: str, data: st.DataObject) -> None:
    """The text that was returned so far is always a beginning of the text before the call."""
    arguments = data.draw(st.dictionaries(st.text(max_size=3), st.text(max_size=5), max_size=3))
    call = json.dumps({"name": "f", "arguments": arguments})
    parser, shown = ToolCallParser(form, {"f"}, lambda: "id"), ""
    for character in before + form.openers[0] + call:
        for event in parser.feed(character):
            if isinstance(event, TextPiece):
                shown += event.text
                assert before.startswith(shown)
    assert parser.calls == 1
    assert shown == before.rstrip()


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)


@given(JSON_VALUES, st.dictionaries(st.text(max_size=3), JSON_VALUES, max_size=3), st.sampled_from([None, 1]))
@examples(200)
def test_whatever_json_stands_before_the_name_of_a_call_it_stays_one(
    value: Any, arguments: dict[str, Any], indent: int | None
) -> None:
    call = json.dumps({"x": value, "y": [value], "arguments": arguments, "name": "f"}, indent=indent)
    (text, ((name, written),)) = parsed(HERMES, [f"<tool_call>{call}</tool_call>"])
    assert (text, name) == ("", "f")
    assert repr(json.loads(written)) == repr(arguments)  # NaN is not itself


OPEN = "<opener>"
REPEATED = {
    "values that do not end": OPEN + '{"a":[',
    "values that end at once": OPEN + '{"a":[1 ',
    "texts": OPEN + '{"a":"b',
    "names of tools": OPEN + '{"name":"f","b":[',
    "strings in and out of each other": OPEN + '{":":"',
    "objects": OPEN + "{",
    "openers": OPEN,
    "calls": OPEN + '{"name":"f","arguments":{}} ',
}


@pytest.mark.parametrize("ending", ["", "]}" * 200])
@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("name", REPEATED)
def test_the_work_grows_with_the_length_of_an_answer_and_no_faster(
    name: str, form: ToolCallFormat, ending: str
) -> None:
    for opener in form.openers:

        def work(times: int, opener: str = opener) -> int:
            answer = REPEATED[name].replace(OPEN, opener) * times + ending
            return count_calls(lambda: parsed(form, [answer])) // len(answer)

        assert work(200) <= 1.5 * work(50) + 5


def test_white_space_is_kept_back_up_to_a_limit() -> None:
    parser = ToolCallParser(HERMES, {"f"}, lambda: "id")
    for _ in range(10):
        parser.feed("a" + " " * 3_000)
        assert 0 < len(parser._text) <= MAX_SPACE
        parser.feed(" " * 20_000)
        assert len(parser._text) <= MAX_SPACE
    parser.feed(f"<tool_call>{F}" + " " * 20_000)
    assert sum(map(len, parser._raw)) <= MAX_SPACE
    assert parsed(HERMES, ["a" + " " * MAX_SPACE + f"<tool_call>{F}"]) == ("a", [F_CALL])


def test_an_answer_is_complete_after_the_most_calls_that_may_be() -> None:
    answer = f"<tool_call>{F}</tool_call><tool_call>{G}</tool_call>"
    assert parsed(HERMES, [answer], most=1) == ("", [F_CALL])
    assert parsed(HERMES, list(answer), most=1) == ("", [F_CALL])


@pytest.mark.parametrize(
    ("template", "form"),
    [
        ("{% if tools %}<tool_call>{% endif %}", HERMES),
        ("{% if tools %}[AVAILABLE_TOOLS] [TOOL_CALLS]{% endif %}", MISTRAL),
        ("{% if message.tools %}<|tool|>{% endif %}", PHI_4_MINI),
        ("{% if tools %}Environment: ipython{% endif %}", LLAMA_3),
        ("{% if tools %}<tool_call><function=name>{% endif %}", None),
        ("{% if tools %}{{ tools }}{% endif %}", None),
        ("{{ messages }}<tool_call>", None),
        ("", None),
    ],
)
def test_the_format_of_a_template(template: str, form: ToolCallFormat | None) -> None:
    assert format_of_template(template) == form


def _is_subsequence(text: str, whole: str) -> bool:
    characters: Any = iter(whole)
    return all(character in characters for character in text)
