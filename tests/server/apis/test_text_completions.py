"""Text completions as the openai package reads them: log probabilities, ids, usage."""

from __future__ import annotations

import pytest

from tests.support.clients.openai_client import openai_client
from tests.support.server import LemonbusServer

CHAT = "extra.tiny-chat"


def test_log_probabilities_whole_and_streamed(shared_server: LemonbusServer) -> None:
    with openai_client(shared_server) as client:
        whole = client.completions.create(model=CHAT, prompt="hi", max_tokens=4, temperature=0, logprobs=2)
        chunks = [
            *client.completions.create(model=CHAT, prompt="hi", max_tokens=4, temperature=0, logprobs=2, stream=True)
        ]
    (choice,) = whole.choices
    assert choice.logprobs is not None
    assert choice.logprobs.tokens == [" Once", " a", " very", " small"]
    assert choice.logprobs.text_offset == [0, 5, 7, 12]
    assert choice.logprobs.token_logprobs == pytest.approx([0.0] * 4, abs=1e-3)
    assert [len(top) for top in choice.logprobs.top_logprobs or []] == [2] * 4
    assert all(
        token in top for token, top in zip(choice.logprobs.tokens, choice.logprobs.top_logprobs or [], strict=True)
    )
    streamed = [chunk.choices[0].logprobs for chunk in chunks if chunk.choices and chunk.choices[0].logprobs]
    assert [token for each in streamed for token in each.tokens or []] == choice.logprobs.tokens
    assert [offset for each in streamed for offset in each.text_offset or []] == choice.logprobs.text_offset
    assert {chunk.id[:5] for chunk in chunks} == {whole.id[:5]} == {"cmpl-"}
