"""Our server for ONNX Runtime GenAI as a process: command line, keys, answers, prompt cache, and its end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.support.http_client import RawHttpClient, run_concurrently
from tests.support.http_exchange import HttpExchange
from tests.support.models.genai_models import GENAI_TEXT, write_genai_model
from tests.support.ports import free_port
from tests.support.waiting import wait_for
from workers.engines.flags import FlagError
from workers.engines.oga_server.server import parse

KEY = "let-me-in"
PIECES = GENAI_TEXT.split()


@contextmanager
def served(folder: Path, *words: str) -> Iterator[tuple[RawHttpClient, subprocess.Popen[bytes]]]:
    port = free_port()
    command = [sys.executable, "-m", "workers.engines.oga_server", "-m", str(folder), "--port", str(port), *words]
    with subprocess.Popen(command, env={**os.environ, "OGA_API_KEY": KEY}, stdin=subprocess.DEVNULL) as process:
        try:
            client = RawHttpClient(port, {"Authorization": f"Bearer {KEY}"})
            wait_for(lambda: healthy(client), "it is healthy", 20)
            yield client, process
            client.close()
        finally:
            process.kill()


def healthy(client: RawHttpClient) -> bool:
    try:
        return client.get("/health").status == 200
    except OSError:
        return False


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RawHttpClient]:
    folder = write_genai_model(tmp_path_factory.mktemp("oga"), "tiny-oga")
    with served(folder, "-a", "public/name", "--ctx-size", "2048", "-t", "1") as (client, _):
        yield client


@pytest.fixture
def endless(tmp_path: Path) -> Iterator[tuple[RawHttpClient, subprocess.Popen[bytes]]]:
    with served(write_genai_model(tmp_path, "tiny-oga-loop"), "-t", "1") as both:
        yield both


def complete(engine: RawHttpClient, **fields: Any) -> HttpExchange:
    return engine.post("/v1/completions", {"prompt": "x", "temperature": 0, **fields})


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ([], "-m is missing"),
        (["-m", "x", "--nope"], "unknown argument --nope"),
        (["-m"], "-m needs a value"),
        (["-m", "x", "--port", "many"], "--port cannot be many"),
        (["-m", "x", "--port", "0"], "out of range"),
        (["-m", "x", "-t", "-1"], "out of range"),
        (["-m", "x", "--host", "0.0.0.0"], "--host must be this machine"),
    ],
)
def test_invalid_command_lines(words: list[str], expected: str) -> None:
    with pytest.raises(FlagError, match=expected):
        parse(words)


@pytest.mark.parametrize(
    ("words", "code", "expected"), [(["--nope"], 2, "unknown argument --nope"), (["-m", "/nowhere"], 1, "cannot load")]
)
def test_exit_code_when_it_cannot_start(words: list[str], code: int, expected: str) -> None:
    command = [sys.executable, "-m", "workers.engines.oga_server", *words]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
    assert (ended.returncode, expected in ended.stderr, ended.stderr.count("\n")) == (code, True, 1), ended.stderr


def test_props_and_version(engine: RawHttpClient) -> None:
    props = engine.get("/props").json()
    assert (props["total_slots"], props["default_generation_settings"]["n_ctx"]) == (1, 2048)
    assert [each["id"] for each in engine.get("/v1/models").json()["data"]] == ["public/name"]
    assert engine.get("/slots").json()[0]["is_processing"] is False


def test_requests_without_the_key_are_refused(engine: RawHttpClient) -> None:
    for key in ("", "let-me-i", f"{KEY}n", "\u00e9"):
        stranger = RawHttpClient(
            engine.port, {"Authorization": f"Bearer {key}".encode().decode("latin-1")} if key else None
        )
        for answer in (stranger.get("/slots"), stranger.post("/v1/completions", {"prompt": "x"})):
            assert (answer.status, answer.error["type"]) == (401, "authentication_error")
        assert stranger.get("/health").status == 200


def test_whole_and_streamed_say_the_same(engine: RawHttpClient) -> None:
    whole = complete(engine)
    assert (whole.text, whole.json()["choices"][0]["finish_reason"]) == (GENAI_TEXT, "stop")
    stream = complete(engine, stream=True, stream_options={"include_usage": True})
    assert (stream.text, stream.done, stream.complete) == (GENAI_TEXT, True, True)
    assert stream.chunks[-1]["usage"] == whole.json()["usage"]
    assert whole.json()["timings"]["predicted_n"] == len(PIECES) + 1
    assert {answer["model"] for answer in (whole.json(), *stream.chunks)} == {"public/name"}


@pytest.mark.parametrize(
    ("fields", "text", "reason"),
    [
        ({"max_tokens": 2}, " One folder", "length"),
        ({"max_completion_tokens": 1, "max_tokens": 5}, " One", "length"),
        ({"max_tokens": 0}, "", "length"),
        ({"max_tokens": -1}, GENAI_TEXT, "stop"),
        ({"stop": " full"}, " One folder", "stop"),
        ({"stop": ["an absent phrase", "ull of num"]}, " One folder f", "stop"),
        ({"stop": ["full of no", ""]}, GENAI_TEXT, "stop"),
        ({"temperature": 2, "top_k": 1}, GENAI_TEXT, "stop"),
        ({"temperature": 0.5, "top_p": 0.9, "top_k": 10**9, "seed": 2**40}, GENAI_TEXT, "stop"),
        ({"do_sample": False, "temperature": 2}, GENAI_TEXT, "stop"),
        ({"prompt": ["x"]}, GENAI_TEXT, "stop"),
        ({"prompt": [5, 6]}, GENAI_TEXT, "stop"),
        ({"prompt": ""}, GENAI_TEXT, "stop"),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
def test_valid_requests(engine: RawHttpClient, fields: dict[str, Any], text: str, reason: str, stream: bool) -> None:
    answer = complete(engine, **fields, stream=stream)
    choices = answer.chunks[-1]["choices"] if stream else answer.json()["choices"]
    assert (answer.text, choices[0]["finish_reason"]) == (text, reason)


@pytest.mark.parametrize("stream", [False, True])
def test_log_probabilities(engine: RawHttpClient, stream: bool) -> None:
    answer = complete(engine, logprobs=3, stop=[" some"], stream=stream)
    parts = [chunk["choices"][0] for chunk in answer.chunks] if stream else answer.json()["choices"]
    reported = [token for part in parts if part["logprobs"] for token in part["logprobs"]["content"]]
    assert "".join(token["token"] for token in reported) == answer.text == " One folder full of numbers knows"
    assert {len(token["top_logprobs"]) for token in reported} == {3}
    assert all(token["logprob"] <= 0 and bytes(token["bytes"]).decode() == token["token"] for token in reported)
    quiet = complete(engine, logprobs=False, stream=stream)
    assert '"logprobs":{' not in quiet.body.decode()


def test_a_seed_makes_chance_repeat_itself(engine: RawHttpClient) -> None:
    def drawn(seed: int) -> str:
        hot = {"temperature": 400.0, "top_p": 1, "top_k": 0, "max_tokens": 12}
        return complete(engine, **hot, seed=seed).body.decode().partition('"index"')[0]

    assert drawn(7) == drawn(7)
    assert len({drawn(seed) for seed in range(4)}) > 1


@pytest.mark.parametrize(
    ("path", "body", "status", "expected"),
    [
        ("/v1/completions", {}, 400, "prompt"),
        ("/v1/chat/completions", {"messages": []}, 400, "messages"),
        ("/v1/chat/completions", {"messages": [{"content": "x"}]}, 400, "messages[0].role"),
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": [1]}]}, 400, "content"),
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, 400, "image"),
        ("/v1/completions", {"prompt": "x", "temperature": "hot"}, 400, "temperature"),
        ("/v1/completions", {"prompt": "x", "temperature": -1}, 400, "temperature"),
        ("/v1/completions", {"prompt": "x", "top_p": 2}, 400, "top_p"),
        ("/v1/completions", {"prompt": [10**6]}, 400, "token 1000000"),
        ("/v1/completions", {"prompt": ["a", "b"]}, 501, "one prompt"),
        ("/v1/completions", {"prompt": "x", "n": 2}, 501, "several choices"),
        ("/v1/completions", {"prompt": "x", "logit_bias": {"1": 5}}, 501, "biased"),
        ("/v1/completions", {"prompt": "x", "grammar": 'root ::= "a"'}, 501, "form"),
        ("/v1/embeddings", {"input": "x"}, 404, "Not Found"),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
def test_refused_requests(
    engine: RawHttpClient, path: str, body: dict[str, Any], status: int, expected: str, stream: bool
) -> None:
    answer = engine.post(path, {**body, "stream": stream})
    assert (answer.status, answer.error["code"], expected in answer.error["message"]) == (status, status, True)


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"POST /v1/completions HTTP/1.1\r\n%bContent-Length: 1\r\n\r\n{", 400),
        (b"POST /v1/completions HTTP/1.1\r\n%b\r\n", 411),
        (b"POST /v1/completions HTTP/1.1\r\n%bContent-Length: 99999999999\r\n\r\n", 413),
        (b"DELETE /v1/completions HTTP/1.1\r\n%b\r\n", 405),
    ],
)
def test_bad_http_is_answered_with_json(engine: RawHttpClient, sent: bytes, status: int) -> None:
    answer = engine.raw(sent % f"Authorization: Bearer {KEY}\r\n".encode()).finish()
    assert (answer.status, answer.error["code"]) == (status, status)
    assert b"Traceback" not in answer.body


def test_a_prompt_beyond_the_context(engine: RawHttpClient) -> None:
    answer = complete(engine, prompt="x" * 2048, stream=True)
    assert (answer.status, answer.error["type"]) == (400, "exceed_context_size_error")
    assert (answer.error["n_prompt_tokens"], answer.error["n_ctx"]) == (2048, 2048)
    last = complete(engine, prompt="x" * 2047)
    assert (last.status, last.json()["usage"]["completion_tokens"]) == (200, 1)


def test_one_after_the_other(engine: RawHttpClient) -> None:
    answers = run_concurrently(6, lambda number: complete(engine, max_tokens=10, stream=number % 2 == 0))
    assert {answer.text for answer in answers} == {"".join(f" {word}" for word in PIECES[:10])}


@pytest.mark.parametrize("stream", [True, False])
def test_a_hang_up_is_noticed_also_in_the_queue(
    endless: tuple[RawHttpClient, subprocess.Popen[bytes]], stream: bool
) -> None:
    client, _ = endless

    def working() -> bool:
        return bool(client.get("/slots").json()[0]["is_processing"])

    first, second = (
        client.start("POST", "/v1/completions", {"prompt": "x", "stream": stream, "max_tokens": 16_000})
        for _ in range(2)
    )
    wait_for(working, "it works")
    second.hang_up()
    first.hang_up()
    wait_for(lambda: not working(), "it has stopped", 2.0)
    assert complete(client, max_tokens=1).status == 200


def test_sigterm_during_an_answer(endless: tuple[RawHttpClient, subprocess.Popen[bytes]]) -> None:
    client, process = endless
    talk = client.start("POST", "/v1/completions", {"prompt": "x", "stream": True})
    talk.until(lambda seen: seen.events)
    process.send_signal(signal.SIGTERM)
    assert process.wait(5) == 0
    talk.finish()
    assert not talk.done


# The prompt cache, with a model whose tokens depend on all tokens before them.


@pytest.fixture(scope="module")
def contextual(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RawHttpClient]:
    folder = write_genai_model(tmp_path_factory.mktemp("oga"), "tiny-oga-context")
    with served(folder, "-t", "1", "--ctx-size", "8192") as (client, _):
        yield client


PROMPT = list(range(5, 105))


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


def test_options_that_may_differ_from_request_to_request(engine: RawHttpClient) -> None:
    """They count for the second request too, although its generator was made for the first."""
    prompt = list(range(5, 30))
    assert complete(engine, prompt=prompt).text == GENAI_TEXT
    longer = complete(engine, prompt=prompt, min_length=40, max_tokens=40).json()
    assert longer["usage"]["completion_tokens"] == 40
    assert longer["usage"]["prompt_tokens_details"]["cached_tokens"] > 0


def test_a_repeat_penalty_counts_for_one_request(contextual: RawHttpClient) -> None:
    texts = [complete(contextual, prompt=PROMPT, max_tokens=9, repeat_penalty=much).text for much in (1, 5, 1)]
    assert texts[0] == texts[2] != texts[1]


def test_a_hang_up_leaves_what_was_computed(contextual: RawHttpClient) -> None:
    stream = contextual.start("POST", "/v1/completions", {"prompt": PROMPT, "stream": True, "max_tokens": 4000})
    stream.until(lambda seen: seen.body)
    stream.hang_up()
    wait_for(lambda: not contextual.get("/slots").json()[0]["is_processing"], "the engine is idle")
    assert complete(contextual, prompt=PROMPT, max_tokens=1, temperature=1).json()["timings"]["cache_n"] == 99


@pytest.mark.parametrize("penalty", ["presence_penalty", "frequency_penalty"])
def test_penalties_for_tokens_that_were_used(
    endless: tuple[RawHttpClient, subprocess.Popen[bytes]], penalty: str
) -> None:
    client, _ = endless
    words = complete(client, max_tokens=40).text.split()
    assert len(set(words)) < len(words)
    answer = complete(client, max_tokens=40, logprobs=1, **{penalty: 100}).json()
    tokens = [token["id"] for token in answer["choices"][0]["logprobs"]["content"]]
    assert len(set(tokens)) == len(tokens) >= len(PIECES), "it ends when it has no new word"
    assert complete(client, max_tokens=40, **{penalty: 0}).text.split() == words


@pytest.mark.parametrize("value", [101, -101, "much"])
def test_penalties_out_of_range(engine: RawHttpClient, value: Any) -> None:
    answer = complete(engine, presence_penalty=value)
    assert (answer.status, "presence_penalty" in answer.error["message"]) == (400, True)
