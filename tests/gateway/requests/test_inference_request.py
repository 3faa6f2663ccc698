"""How many tokens a request may generate."""

from __future__ import annotations

import pytest

from gateway.requests.inference_request import MAX_TOKEN_LIMIT, token_limit


@pytest.mark.parametrize(
    ("body", "answers", "tokens"),
    [
        (b'{"max_tokens":7,"messages":[]}', 1, 7),
        (b'{"max_completion_tokens":7,"max_tokens":null}', 3, 21),
        (b'{"n_predict":7}', 0, 7),
        (b'{"n_predict":-1}', 1, 0),
        (b'{"max_tokens":"7"}', 1, 0),
        (b'{"max_tokens":true}', 1, 0),
        (b'{"max_tokens":9007199254740993}', 4, MAX_TOKEN_LIMIT),
        (b"{}", 5, 0),
        (b"[]", 1, 0),
        (b"{", 1, 0),
    ],
)
def test_what_a_request_may_generate(body: bytes, answers: int, tokens: int) -> None:
    assert token_limit(body, answers) == tokens
