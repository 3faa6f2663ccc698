"""What a whisper-server needs, beside the sizes that whisper.cpp logs for tiny.en and large-v3 when it makes its state."""

from __future__ import annotations

import pytest

from protocol.config.settings import Settings
from protocol.models.memory import HOST
from protocol.models.recipes import ModelSpec
from tests.support.models.tiny_models import tiny_models
from workers.backends.whispercpp.backend import WhisperCppBackend
from workers.backends.whispercpp.memory import PROCESS_BYTES, whisper_memory
from workers.files import ggml
from workers.files.ggml import GgmlHeader

TINY = GgmlHeader(51_864, 1500, 384, 6, 4, 448, 384, 6, 4, 80, 1, 80, 201)
LARGE = TINY._replace(
    words=51_866,
    audio_width=1280,
    text_width=1280,
    audio_heads=20,
    text_heads=20,
    audio_layers=32,
    text_layers=32,
    mels=128,
)


@pytest.mark.parametrize(
    ("header", "cache", "compute"),
    [(TINY, 3.15 + 9.44 + 2.36, 13.21 + 17.72 + 3.89 + 95.91), (LARGE, 83.89 + 251.66 + 7.86, None)],
)
def test_the_parts_are_those_that_whisper_cpp_logs(header: GgmlHeader, cache: float, compute: float | None) -> None:
    found = whisper_memory(header, 77_000_000, flash=True)
    assert found.parts["cache"] / 1e6 == pytest.approx(cache, abs=0.02)
    assert compute is None or found.parts["compute"] / 1e6 == pytest.approx(compute, rel=0.02)
    assert found.need() == {HOST: 77_000_000 + found.parts["cache"] + found.parts["compute"] + PROCESS_BYTES}
    assert found.places[HOST].lazy == found.parts["compute"]


def test_without_flash_attention_the_encoder_has_all_scores_of_a_layer() -> None:
    with_scores, without = (whisper_memory(TINY, 0, flash=flash).parts["compute"] for flash in (False, True))
    assert with_scores - without == 1500 * 1500 * 6 * 4


def test_the_backend_reads_the_header() -> None:
    path = tiny_models() / "models" / "tiny-whisper.bin"
    backend, plain = (
        WhisperCppBackend(
            ModelSpec("x", "x", "whispercpp", "cpu", "audio", str(path), options={"whispercpp_args": arguments}),
            Settings(),
        )
        for arguments in ("", "--no-flash-attn")
    )
    for each in (backend, plain):
        each.model_facts = each.examine()
    assert backend.memory() == whisper_memory(ggml.check(path), path.stat().st_size, flash=True)
    assert plain.memory().parts["compute"] > backend.memory().parts["compute"]
