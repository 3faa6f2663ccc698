"""The estimate of memory, beside what real engines take: a few of the benchmark's engines, made small."""

from __future__ import annotations

from pathlib import Path

import pytest

from protocol.models.recipes import OptionValue
from tests.benchmarks.memory_estimates import compare
from tests.support.models import synthetic_gguf as synthetic
from tests.support.models.synthetic_gguf import SyntheticModel

MOST = 0.15
SMALL = synthetic.llama(layers=2, width=512, heads=8, kv_heads=8, inner=1536)


@pytest.mark.parametrize(
    ("model", "options"),
    [
        (SMALL, {"ctx_size": 8192}),
        (SMALL, {"ctx_size": 8192, "llamacpp_args": "-ctk q8_0 -ctv q8_0 --no-mmap"}),
        (synthetic.gemma3(layers=6), {"ctx_size": 4096, "slots": 2}),
    ],
    ids=["llama", "8-bit cache", "windows"],
)
def test_an_engine_takes_what_was_estimated(
    tmp_path: Path, model: SyntheticModel, options: dict[str, OptionValue]
) -> None:
    path = model.write(tmp_path / "model.gguf")
    found = compare("m", str(tmp_path), "llamacpp", path, options)
    assert abs(found.error) < MOST, f"{found.estimated} MB estimated, {found.measured} MB measured"
