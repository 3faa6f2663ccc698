"""``echo`` of text completions, and the log probabilities of the prompt's tokens by which evaluations judge answers."""

from __future__ import annotations

from typing import Any

import pytest

from tests.conftest import StartServer
from tests.support.models.tiny_models import tiny_models
from tests.support.server import LemonbusServer
from tests.support.waiting import wait_for

CHAT, LOOP = "extra.tiny-chat", "extra.tiny-loop"
EVALUATION = {"temperature": 0, "max_tokens": 1, "logprobs": 1, "seed": 1234, "echo": True}
"""The fields that lm-eval's ``local-completions`` sends with its prompts."""
TEXTS = [" Once a very small model", " Once é and </s> a 😀", "x"]


def post(server: LemonbusServer, path: str, body: dict[str, Any]) -> Any:
    answer = server.client.post(path, body)
    assert answer.status == 200, answer
    return answer.json()


def tokens_of(server: LemonbusServer, model: str, text: str) -> list[int]:
    found: list[int] = post(server, "/tokenize", {"model": model, "content": text, "add_special": True})["tokens"]
    return found


def probability(server: LemonbusServer, model: str, before: list[int], token: int) -> float:
    """Return the engine's own log probability of a token after others: among all that it could generate."""
    body = {"model": model, "prompt": before, "n_predict": 1, "n_probs": 10_000, "temperature": 0}
    # A token within a character has no entry of its own.
    body["logit_bias"] = [[tokens_of(server, model, "x")[-1], 1000]]
    (entry,) = post(server, "/completion", body)["completion_probabilities"]
    (found,) = [each["logprob"] for each in entry["top_logprobs"] if each["id"] == token]
    return float(found)


@pytest.mark.parametrize("as_tokens", [True, False])
def test_each_token_of_each_prompt_has_the_engines_own_probability(
    shared_server: LemonbusServer, as_tokens: bool
) -> None:
    tokens = [tokens_of(shared_server, CHAT, text) for text in TEXTS]
    prompts = tokens if as_tokens else TEXTS
    whole = post(shared_server, "/v1/completions", {"model": CHAT, "prompt": prompts, **EVALUATION})
    assert [choice["index"] for choice in whole["choices"]] == [0, 1, 2]
    for choice, text, expected in zip(whole["choices"], TEXTS, tokens, strict=True):
        found = choice["logprobs"]
        assert {len(values) for values in found.values()} == {len(expected) + 1}, "and the generated token"
        assert found["token_logprobs"][0] is found["top_logprobs"][0] is None
        computed = [probability(shared_server, CHAT, expected[:end], expected[end]) for end in range(1, len(expected))]
        assert found["token_logprobs"][1:-1] == pytest.approx(computed, abs=0.02)
        assert all(max(top.values()) >= each for top, each in zip(found["top_logprobs"][1:-1], computed, strict=True))
        assert choice["text"].startswith("<s>" + text if as_tokens else text)
    assert min(whole["choices"][0]["logprobs"]["token_logprobs"][1:-1]) < -1, "an unlikely text"
    assert whole["usage"]["prompt_tokens"] == sum(map(len, tokens))


def test_offsets_count_characters_of_the_text(shared_server: LemonbusServer) -> None:
    body = {"model": CHAT, "prompt": "hé", "max_tokens": 2, "temperature": 0, "logprobs": 1, "echo": True}
    choice = post(shared_server, "/v1/completions", body)["choices"][0]
    assert choice["text"] == "hé Once a"
    assert choice["logprobs"]["tokens"] == ["<s>", "h", "bytes:\\xc3", "bytes:\\xa9", " Once", " a"]
    assert choice["logprobs"]["text_offset"] == [0, 0, 1, 1, 2, 7]


def test_no_token_is_generated_if_none_is_wanted(shared_server: LemonbusServer) -> None:
    body = {"model": CHAT, "prompt": "hi", "max_tokens": 0, "logprobs": 0, "echo": True}
    whole = post(shared_server, "/v1/completions", body)
    (choice,) = whole["choices"]
    assert (choice["text"], choice["finish_reason"]) == ("hi", "length")
    assert choice["logprobs"]["tokens"] == ["<s>", "h", "i"]
    assert choice["logprobs"]["top_logprobs"] == [None, {}, {}]
    assert (whole["usage"]["completion_tokens"], whole["usage"]["total_tokens"]) == (0, 3)


def test_a_long_prompt_is_scored_in_several_runs_and_each_choice_has_it(shared_server: LemonbusServer) -> None:
    body = {"model": LOOP, "prompt": ["word " * 60, "b"], "max_tokens": 2, "temperature": 0, "logprobs": 1, "n": 2}
    whole = post(shared_server, "/v1/completions", {**body, "echo": True})
    first, second, *others = [choice["logprobs"] for choice in whole["choices"]]
    assert first == second
    assert len(first["tokens"]) > 256
    assert all(each["tokens"] == ["<s>", "b", " Once", " a"] for each in others)
    stats = shared_server.client.get("/v1/stats").json()
    assert stats["output_tokens"] > 256, "the request is one, and the engine generated its prompt"


def test_token_numbers_are_echoed_as_text(shared_server: LemonbusServer) -> None:
    body = {"model": CHAT, "prompt": tokens_of(shared_server, CHAT, "hi"), "max_tokens": 1, "echo": True}
    assert post(shared_server, "/v1/completions", body)["text"] == "<s>hi Once"


def test_a_hang_up_ends_the_scoring(shared_server: LemonbusServer) -> None:
    body = {"model": LOOP, "prompt": ["word " * 400] * 100, "max_tokens": 1, "logprobs": 1, "echo": True}
    scoring = shared_server.client.start("POST", "/v1/completions", body)
    wait_for(lambda: shared_server.busy_slots(LOOP) > 0, "it has begun")
    assert shared_server.client.chat(LOOP, max_tokens=1).status == 200
    scoring.hang_up()
    shared_server.assert_idle()


def test_guesses_of_a_draft_model_are_not_certain(shared_server: LemonbusServer, start_server: StartServer) -> None:
    """llama-server reports probability 1 for each token that a draft model has guessed, whether the guess was right or not."""
    draft = tiny_models() / "models/tiny-chat.gguf"
    server = start_server("tiny-chat", llamacpp_args=f"-t 1 -md {draft} --draft-max 4 --draft-min 1")
    body = {"model": CHAT, "prompt": " Once a very bad small model", **EVALUATION}
    expected, found = (
        post(each, "/v1/completions", body)["choices"][0]["logprobs"]["token_logprobs"][1:]
        for each in (shared_server, server)
    )
    assert found == pytest.approx(expected, abs=0.02)
    refused = server.client.post("/v1/completions", {**body, "max_tokens": 2})
    assert (refused.status, refused.error["param"]) == (400, "logprobs")
    assert server.client.post("/v1/completions", {**body, "max_tokens": 2, "logprobs": None}).status == 200
    assert server.client.chat(CHAT, logprobs=True).status == 400
