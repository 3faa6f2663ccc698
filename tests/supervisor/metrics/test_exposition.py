"""The text of `/metrics`: Prometheus can read it, and it has each family that Mullama documents."""

from __future__ import annotations

import re

import pytest

from protocol.failures import Code, Failure
from protocol.messages.engines import LoadStage
from protocol.messages.health import FailedModel, LoadInProgress
from supervisor.metrics.engine_families import MAX_SAMPLES
from supervisor.metrics.exposition import render
from supervisor.metrics.server_metrics import MAX_KEYS, ServerMetrics
from supervisor.metrics.snapshot import EngineMetrics, RemainingLimit
from tests.supervisor.metrics.rendered_metrics import LOADED, MACHINE, busy_metrics, families, snapshot
from tests.support.metric_rules import broken_rules, promtool_problems

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


@pytest.mark.parametrize("prefix", ["lemonbus_", "mullama_"])
@pytest.mark.parametrize("name", DOCUMENTED)
def test_documented_families(prefix: str, name: str) -> None:
    kind, labels = DOCUMENTED[name]
    if (prefix, name) == ("lemonbus_", "uptime_seconds"):
        kind = "gauge"  # the name of a counter would end with _total
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
        "mullama_uptime_seconds 3600.5",
        "mullama_models_loaded 1.0",
        'mullama_requests_total{endpoint="chat"} 2.0',
        'mullama_requests_total{endpoint="generate"} 0.0',
        'mullama_requests_total{endpoint="embeddings"} 0.0',
        "mullama_requests_active 2.0",
        "mullama_tokens_generated_total 8.0",
        f"mullama_tokens_per_second{label} 20.0",
        "mullama_prompt_tokens_total 12.0",
        f"mullama_model_parameters{label} 1236000000.0",
        f"mullama_model_context_size{label} 4096.0",
        f"mullama_model_gpu_layers{label} 35.0",
        "mullama_memory_used_bytes 4500000000.0",
        'mullama_request_duration_seconds_bucket{le="0.1"} 0.0',
        'mullama_request_duration_seconds_bucket{le="0.5"} 2.0',
        'mullama_request_duration_seconds_bucket{le="1.0"} 2.0',
        'mullama_request_duration_seconds_bucket{le="5.0"} 2.0',
        'mullama_request_duration_seconds_bucket{le="+Inf"} 2.0',
        "mullama_request_duration_seconds_count 2.0",
        "mullama_request_duration_seconds_sum 0.6",
    ):
        assert line in lines, line


def test_a_key_sees_its_models_and_mullamas_names_are_those_of_its_document() -> None:
    now = snapshot(models=(LOADED, LOADED._replace(name="hidden")))._replace(short_names={LOADED.name: "a:b"})
    lines = render(busy_metrics(), now, with_mullama=True, models=["a*"]).decode().splitlines()
    assert not any("hidden" in line for line in lines)
    assert 'mullama_model_parameters{model="a:b"} 1236000000.0' in lines
    assert r'lemonbus_slots{model="a\"b\\c\n"} 4.0' in lines
    assert r'lemonbus_first_token_seconds_bucket{model="a\"b\\c\n",le="+Inf"} 1.0' in lines
    assert r'lemonbus_first_token_seconds_count{model="a\"b\\c\n"} 1.0' in lines


def test_mullamas_names_can_be_left_out() -> None:
    text = render(busy_metrics(), snapshot(models=(LOADED,)), with_mullama=False)
    assert b"mullama_" not in text.replace(b'dialect="mullama"', b"")
    assert b"lemonbus_uptime_seconds 3600.5\n" in text


def test_a_server_without_models_shows_every_family() -> None:
    text = render(ServerMetrics(), snapshot(), with_mullama=True)
    for prefix in ("lemonbus_", "mullama_"):
        for name in DOCUMENTED:
            assert f"# TYPE {prefix}{name} ".encode() in text


def test_the_rules_for_names_are_kept() -> None:
    engine = EngineMetrics(LOADED.name, LLAMA % 5 + b"vllm:without_help 1\n")
    now = snapshot(engine, models=(LOADED,))._replace(machine=MACHINE, loads=LOADS)
    text = render(busy_metrics(), now, with_mullama=False).decode()
    assert broken_rules(text) == []
    assert promtool_problems(text) == ""


def test_the_rules_find_what_promtool_finds() -> None:
    wrong = {
        "a:b": ("gauge", "a colon"),
        "a_ms": ("gauge", "an abbreviated unit"),
        "a_percent": ("gauge", "a unit that is not a base unit"),
        "a_gauge": ("gauge", "its type in its name"),
        "a_count": ("gauge", "a histogram's suffix"),
        "aB": ("gauge", "an upper-case letter"),
        "a_total": ("gauge", "only a counter's name ends with _total"),
        "a_seconds": ("counter", "a counter's name ends with _total"),
    }
    for name, (kind, problem) in wrong.items():
        (found,) = broken_rules(f"# HELP {name} Help\n# TYPE {name} {kind}\n{name} 1\n")
        assert problem in found
    assert broken_rules("a 1\n") == ["a: no help text"]
    assert broken_rules('# HELP a A\n# TYPE a gauge\na{le="1"} 1\n') == ["a: has the label le"]


def test_what_has_failed_or_is_only_configured_takes_the_series_of_nothing_that_was_used() -> None:
    metrics = ServerMetrics(most_models=2)
    for name in ("used", "also-used"):
        metrics.load_failed(name)
    for number in range(MAX_KEYS):
        metrics.request_submitted(f"key-{number}")
    failure = Failure(Code.LOAD_FAILED, "No")
    failed = [FailedModel(name, failure, 1, 0.0) for name in ("x", "used", "y", "z")]
    limits = [RemainingLimit(name, "concurrent", 1) for name in ("key-0", "unused")]
    expiries = {"key-1": 1.9e9, "unused": 1.9e9}
    now = snapshot()._replace(models=[], engines=[], failed=failed, key_limits=limits, key_expiries=expiries)
    for _ in range(2):
        lines = render(metrics, now, with_mullama=False).decode().splitlines()
        shown = {line.partition(" ")[0] for line in lines}
        assert {line for line in shown if line.startswith("lemonbus_model_failures")} == {
            'lemonbus_model_failures{model="used"}'
        }
        assert {line for line in shown if line.startswith("lemonbus_model_loads_total")} == {
            f'lemonbus_model_loads_total{{model="{name}",result="failed"}}' for name in ("used", "also-used")
        }
        assert len([line for line in shown if line.startswith("lemonbus_key_requests_total")]) == MAX_KEYS
        assert not [line for line in shown if 'key="unused"' in line]


def test_failed_models_and_keys_that_expire_are_shown() -> None:
    failure = Failure(Code.LOAD_FAILED, "No")
    failed = [FailedModel("a", failure, 3, 12.5), FailedModel("b", failure, 1, 0.0)]
    now = snapshot()._replace(failed=failed, key_expiries={"dashboard": 1.9e9})
    lines = render(ServerMetrics(), now, with_mullama=False).decode().splitlines()
    for line in (
        "lemonbus_models_failed 2.0",
        "lemonbus_models_backing_off 1.0",
        'lemonbus_model_failures{model="a"} 3.0',
        'lemonbus_model_retry_seconds{model="a"} 12.5',
        'lemonbus_model_retry_seconds{model="b"} 0.0',
        'lemonbus_key_expiry_timestamp_seconds{key="dashboard"} 1900000000.0',
    ):
        assert line in lines, line


LOADS = [
    LoadInProgress("a", LoadStage.LOADING, 12.5, 1, done=30, total=120, unit="tensors"),
    LoadInProgress("b", LoadStage.WAITING_FOR_MEMORY, 2.0, 1),
]


def test_loads_under_way_are_shown() -> None:
    text = render(ServerMetrics(), snapshot()._replace(loads=LOADS), with_mullama=False).decode()
    assert [line for line in text.splitlines() if line.startswith("lemonbus_model_load_") and "{" in line] == [
        'lemonbus_model_load_age_seconds{model="a"} 12.5',
        'lemonbus_model_load_age_seconds{model="b"} 2.0',
        'lemonbus_model_load_stage{model="a",stage="loading"} 1.0',
        'lemonbus_model_load_stage{model="b",stage="waiting for memory"} 1.0',
        'lemonbus_model_load_progress_ratio{model="a"} 0.25',
    ]


# ---- the engines' own --------------------------------------------------------------------------------------------


def test_engines_are_merged_under_their_models() -> None:
    text = render(
        ServerMetrics(), snapshot(EngineMetrics("a", LLAMA % 5), EngineMetrics("b", LLAMA % 7)), with_mullama=True
    )
    found = families(text)
    tokens = {sample.labels["model"]: sample.value for sample in found["llamacpp_prompt_tokens"].samples}
    assert tokens == {"a": 5, "b": 7}
    assert b"# TYPE llamacpp_prompt_tokens_total counter\n" in text
    assert b'llamacpp_n_busy_slots_per_decode{model="a"} 1.5\n' in text
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
    assert [sample.labels["model"] for sample in found["llamacpp_prompt_tokens"].samples] == ["good"]
    assert "x" not in found
    up = {sample.labels["model"]: sample.value for sample in found["lemonbus_engine_metrics_up"].samples}
    assert up == {"bad": float(answer is not None), "good": 1}
    assert len(found["lemonbus_info"].samples) == 1
