"""The prompt cache of our server for ONNX Runtime GenAI, with a model whose tokens depend on all tokens before them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.clients.http_client import RawHttpClient
from tests.support.models.genai_models import write_genai_model
from tests.support.waiting import wait_for
from tests.workers.engine_servers.oga_server.oga_process import complete, oga_server

PROMPT = list(range(5, 105))


@pytest.fixture(scope="module")
def contextual(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RawHttpClient]:
    folder = write_genai_model(tmp_path_factory.mktemp("oga"), "tiny-oga-context")
    with oga_server(folder, "--ctx-size", "8192") as (client, _):
        yield client


def scored(engine: RawHttpClient, prompt: list[int], **fields: Any) -> tuple[int, list[float]]:
    """Return how many of the prompt's tokens were cached, and the log probability of each token of the answer."""
    answer = complete(engine, prompt=prompt, max_tokens=6, logprobs=1, **fields).json()
    assert answer["timings"]["prompt_n"] + answer["timings"]["cache_n"] == len(prompt)
    cached = answer["usage"]["prompt_tokens_details"]["cached_tokens"]
    return cached, [token["logprob"] for token in answer["choices"][0]["logprobs"]["content"]]


@pytest.mark.parametrize(
    ("second", "cached"),
    [
        ([*PROMPT, *range(30, 60)], 100),
        (PROMPT, 99),
        (PROMPT[:40], 39),
        ([*PROMPT[:50], *range(7, 87)], 50),
        ([9, *PROMPT], 0),
        ([5], 0),
        (PROMPT * 40, 100),
    ],
)
def test_a_prompt_with_a_known_beginning_is_not_computed_again(
    contextual: RawHttpClient, second: list[int], cached: int
) -> None:
    expected = scored(contextual, second, cache_prompt=False)
    assert expected[0] == 0
    scored(contextual, PROMPT, cache_prompt=True)
    found = scored(contextual, second)
    assert found[0] == cached
    assert found[1] == pytest.approx(expected[1], abs=1e-4), "the same scores as without a cache"
    assert scored(contextual, PROMPT, cache_prompt=False)[1] != expected[1] or second == PROMPT


def test_the_answer_before_is_a_part_of_the_conversation(contextual: RawHttpClient) -> None:
    first = complete(contextual, prompt=PROMPT, max_tokens=20, logprobs=1).json()
    expected_text = [token["id"] for token in first["choices"][0]["logprobs"]["content"]]
    cached, _ = scored(contextual, [*PROMPT, *expected_text, 40, 41])
    assert cached == len(PROMPT) + len(expected_text)


@pytest.mark.parametrize("other", [{"temperature": 300.0}, {"seed": 4, "temperature": 300.0}, {"cache_prompt": False}])
def test_another_way_of_sampling_starts_anew(contextual: RawHttpClient, other: dict[str, Any]) -> None:
    scored(contextual, PROMPT)
    assert scored(contextual, PROMPT, **other)[0] == 0


def test_a_repeat_penalty_counts_for_one_request(contextual: RawHttpClient) -> None:
    texts = [complete(contextual, prompt=PROMPT, max_tokens=9, repeat_penalty=much).text for much in (1, 5, 1)]
    assert texts[0] == texts[2] != texts[1]


def test_a_hang_up_leaves_what_was_computed(contextual: RawHttpClient) -> None:
    stream = contextual.start("POST", "/v1/completions", {"prompt": PROMPT, "stream": True, "max_tokens": 4000})
    stream.until(lambda seen: seen.body)
    stream.hang_up()
    wait_for(lambda: not contextual.get("/slots").json()[0]["is_processing"], "the engine is idle")
    assert complete(contextual, prompt=PROMPT, max_tokens=1, temperature=1).json()["timings"]["cache_n"] == 99
