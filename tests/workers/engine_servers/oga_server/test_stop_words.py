"""Stop words in a text that arrives in pieces."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tests.support.properties import examples
from workers.engine_servers.oga_server.stop_words import StopWordFilter


@examples(60)
@given(st.text("ab", max_size=30), st.lists(st.text("ab", min_size=1, max_size=4), max_size=3), st.data())
def test_stop_words_are_found_however_the_text_is_cut(text: str, words: list[str], data: st.DataObject) -> None:
    stop_words, shown, at = StopWordFilter(words), "", 0
    while at < len(text) and not stop_words.found:
        size = data.draw(st.integers(1, 5))
        shown += stop_words.feed(text[at : at + size])
        at += size
    if not stop_words.found:
        shown += stop_words.rest()
    ends = [offset for word in words if (offset := text.find(word)) >= 0]
    if not ends:
        assert shown == text
    else:
        assert stop_words.found
        assert text.startswith(shown)
        assert not any(word in shown for word in words)
