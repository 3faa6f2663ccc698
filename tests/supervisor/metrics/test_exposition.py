"""The text of `/metrics`: Prometheus can read it, and it has each family that Mullama documents."""

from __future__ import annotations

import re

import pytest
from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families

from protocol.messages.events import Outcome
from protocol.messages.metrics import DURATION_BUCKETS, RequestSeries
from supervisor.metrics.engine_families import MAX_SAMPLES
from supervisor.metrics.exposition import render
from supervisor.metrics.server_metrics import ServerMetrics
from supervisor.metrics.snapshot import EngineMetrics, ModelSnapshot, ServerSnapshot

DOCUMENTED = {
    "info": ("gauge", {"version"}),
    "uptime_seconds": ("counter", set()),
    "models_loaded": ("gauge", set()),
    "requests_total": ("counter", {"endpoint"}),
    "requests_active": ("gauge", set()),
    "tokens_generated_total": ("counter", set()),
    "tokens_per_second": ("gauge", {"model"}),
    "prompt_tokens_total": ("counter", set()),
    "model_parameters": ("gauge", {"model"}),
    "model_context_size": ("gauge", {"model"}),
    "model_gpu_layers": ("gauge", {"model"}),
    "memory_used_bytes": ("gauge", set()),
    "request_duration_seconds": ("histogram", {"le"}),
}
"""Name without its prefix → type and labels, as Mullama's API documents them."""
LLAMA = b"""# HELP llamacpp:prompt_tokens_total Number of prompt tokens processed.
# TYPE llamacpp:prompt_tokens_total counter
llamacpp:prompt_tokens_total %d
# HELP llamacpp:n_busy_slots_per_decode Average number of busy slots per llama_decode() call
# TYPE llamacpp:n_busy_slots_per_decode counter
llamacpp:n_busy_slots_per_decode 1.5
"""


def snapshot(*engines: EngineMetrics, models: tuple[ModelSnapshot, ...] = ()) -> ServerSnapshot:
    return ServerSnapshot("1.2.3", 3600.5, 2, list(models), {"gateway": 7}, {"malformed": 1}, 0, list(engines))


LOADED = ModelSnapshot('a"b\\c\n', True, 1, 4, 2, 1_236_000_000, 4096, 35, 100, 4_500_000_000)


def busy_metrics() -> ServerMetrics:
    metrics = ServerMetrics()
    metrics.generation_ended(LOADED.name, Outcome(12, 2, 8, 0.1, 0.4, 0.5, b"\0" * 32))
    buckets = [0] * (len(DURATION_BUCKETS) + 1)
    buckets[DURATION_BUCKETS.index(0.5)] = 2
    metrics.requests_observed([RequestSeries("api/chat", "mullama", 200, "", "chat/completions", 0.6, buckets)])
    return metrics


def families(text: bytes) -> dict[str, Metric]:
    found = list(text_string_to_metric_families(text.decode()))
    assert len({family.name for family in found}) == len(found), "a family is there once"
    return {family.name: family for family in found}


@pytest.mark.parametrize("prefix", ["lemonbus_", "mullama_"])
@pytest.mark.parametrize("name", DOCUMENTED)
def test_documented_families(prefix: str, name: str) -> None:
    kind, labels = DOCUMENTED[name]
    text = render(busy_metrics(), snapshot(models=(LOADED,)), with_mullama=True)
    assert f"# TYPE {prefix}{name} {kind}\n".encode() in text
    samples = [
        sample
        for family in families(text).values()
        for sample in family.samples
        if re.fullmatch(f"{prefix}{name}(_total|_bucket|_count|_sum)?", sample.name)
    ]
    assert samples
    for sample in samples:
        assert set(sample.labels) == (labels if sample.name.endswith("_bucket") or kind != "histogram" else set())


def test_documented_values() -> None:
    lines = render(busy_metrics(), snapshot(models=(LOADED,)), with_mullama=True).decode().splitlines()
    label = r'{model="a\"b\\c\n"}'
    for line in (
        'mullama_info{version="1.2.3"} 1.0',
        "mullama_uptime_seconds 3600.500",
        "mullama_models_loaded 1.0",
        'mullama_requests_total{endpoint="chat"} 2.0',
        'mullama_requests_total{endpoint="generate"} 0.0',
        'mullama_requests_total{endpoint="embeddings"} 0.0',
        "mullama_requests_active 2.0",
        "mullama_tokens_generated_total 8.0",
        f"mullama_tokens_per_second{label} 20.0",
        "mullama_prompt_tokens_total 12.0",
        f"mullama_model_parameters{label} 1.236e+09",
        f"mullama_model_context_size{label} 4096.0",
        f"mullama_model_gpu_layers{label} 35.0",
        "mullama_memory_used_bytes 4.5e+09",
        'mullama_request_duration_seconds_bucket{le="0.1"} 0.0',
        'mullama_request_duration_seconds_bucket{le="0.5"} 2.0',
        'mullama_request_duration_seconds_bucket{le="1.0"} 2.0',
        'mullama_request_duration_seconds_bucket{le="5.0"} 2.0',
        'mullama_request_duration_seconds_bucket{le="+Inf"} 2.0',
        "mullama_request_duration_seconds_count 2.0",
        "mullama_request_duration_seconds_sum 0.6",
    ):
        assert line in lines, line


def test_mullamas_names_can_be_left_out() -> None:
    text = render(busy_metrics(), snapshot(models=(LOADED,)), with_mullama=False)
    assert b"mullama_" not in text.replace(b'dialect="mullama"', b"")
    assert b"lemonbus_uptime_seconds 3600.500\n" in text


def test_a_server_without_models_shows_every_family() -> None:
    text = render(ServerMetrics(), snapshot(), with_mullama=True)
    for prefix in ("lemonbus_", "mullama_"):
        for name, (kind, _) in DOCUMENTED.items():
            assert f"# TYPE {prefix}{name} {kind}\n".encode() in text


# ---- the engines' own --------------------------------------------------------------------------------------------


def test_engines_are_merged_under_their_models() -> None:
    text = render(
        ServerMetrics(), snapshot(EngineMetrics("a", LLAMA % 5), EngineMetrics("b", LLAMA % 7)), with_mullama=True
    )
    found = families(text)
    tokens = {sample.labels["model"]: sample.value for sample in found["llamacpp:prompt_tokens"].samples}
    assert tokens == {"a": 5, "b": 7}
    assert b"# TYPE llamacpp:prompt_tokens_total counter\n" in text
    assert b'llamacpp:n_busy_slots_per_decode{model="a"} 1.5\n' in text
    assert {sample.value for sample in found["lemonbus_engine_metrics_up"].samples} == {1}


@pytest.mark.parametrize(
    "answer",
    [
        None,
        b"<html>",
        b"\xff\xfe",
        b"# TYPE x counter\nx{ 1\n",
        b"x nonsense\n",
        b"lemonbus_info 7\nmullama_info 7\n",
        b"".join(b'x{n="%d"} 1\n' % number for number in range(MAX_SAMPLES + 1)),
    ],
)
def test_an_engine_without_an_answer_or_with_a_wrong_one_harms_nothing(answer: bytes | None) -> None:
    good = EngineMetrics("good", LLAMA % 5)
    found = families(render(ServerMetrics(), snapshot(EngineMetrics("bad", answer), good), with_mullama=True))
    assert [sample.labels["model"] for sample in found["llamacpp:prompt_tokens"].samples] == ["good"]
    assert "x" not in found
    up = {sample.labels["model"]: sample.value for sample in found["lemonbus_engine_metrics_up"].samples}
    assert up == {"bad": float(answer is not None), "good": 1}
    assert len(found["lemonbus_info"].samples) == 1
