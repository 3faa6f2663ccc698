"""What a llama-server needs, beside the sizes that llama.cpp (b11549) reports for the same files and flags."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from gguf import GGMLQuantizationType as Type
from hypothesis import given
from hypothesis import strategies as st

from protocol.models.memory import HOST, MemoryEstimate
from tests.support.models import synthetic_gguf as synthetic
from tests.support.models.synthetic_gguf import SyntheticModel
from workers.backends.llamacpp.memory.companions import Companions
from workers.backends.llamacpp.memory.estimate import compute_bytes, estimate
from workers.backends.llamacpp.memory.launch import MIB, read_launch
from workers.backends.llamacpp.memory.model_shape import model_shape
from workers.backends.llamacpp.memory.tensor_placement import DeviceShare
from workers.files.gguf import GgufHeader, GgufTensor

GPU = DeviceShare("0000:01:00.0", 1.0, "CUDA0")
OTHER_GPU = DeviceShare("0000:02:00.0", 1.0, "CUDA1")
LARGE_VOCABULARY = synthetic.llama(layers=4, width=512, heads=8, kv_heads=8, inner=1536, vocabulary=262_144)
MOE = synthetic.qwen3moe()


def need_of(model: SyntheticModel, arguments: str = "", **more: Any) -> MemoryEstimate:
    options: dict[str, Any] = {"context": 4096, "slots": 1, **more}
    companions = options.pop("companions", Companions())
    return estimate([model.header()], companions, ["--cache-ram", "0", *arguments.split()], **options)


@pytest.mark.parametrize(
    ("model", "arguments", "context", "slots", "weights", "cache", "compute"),
    [
        (synthetic.llama(), "-b 512", 4096, 2, 1119.07, 256.0, 72.02),
        (synthetic.llama(layers=4, kind=Type.Q6_K), "-b 512", 4096, 2, 292.92, 64.0, 72.02),
        (LARGE_VOCABULARY, "", 1024, 4, 285.83, 32.0, 15.02),
        (synthetic.qwen3moe(), "", 4096, 2, 743.77, 192.0, 38.02),
        (synthetic.qwen3moe(layers=4, width=2048, experts=16), "", 4096, 2, 379.89, 64.0, 80.02),
        (synthetic.gemma3(), "", 8192, 2, 784.04, 108.0, 60.78),
        (synthetic.mamba(), "", 2048, 4, 240.60, 14.25, 30.60),
        (synthetic.deepseek2(), "", 4096, 2, 232.77, 72.0, 54.01),
        (synthetic.bert(), "--embeddings -b 512 -ub 512", 512, 16, 43.48, 0.0, 7.29),
        (synthetic.bert(context=8192), "--embeddings -b 8192 -ub 8192", 8192, 16, 54.73, 0.0, 236.69),
        (synthetic.bert(context=8192), "--embeddings -b 8192 -ub 8192 -fa off", 8192, 16, 54.73, 0.0, 3412.69),
    ],
    ids=["gqa", "q6k", "vocabulary", "moe", "wide moe", "windows", "recurrent", "mla", "bert", "long bert", "no flash"],
)  # fmt: skip
def test_the_parts_are_those_that_llama_cpp_reports(
    model: SyntheticModel, arguments: str, context: int, slots: int, weights: float, cache: float, compute: float
) -> None:
    found = need_of(model, arguments, context=context, slots=slots)
    assert found.parts["weights"] / MIB == pytest.approx(weights, abs=0.01)
    assert found.parts.get("cache", 0) / MIB == pytest.approx(cache, abs=0.01)
    launch = read_launch(arguments.split(), context, slots)
    shape = model_shape([model.header()])
    buffer = (compute_bytes(shape, launch, HOST) - shape.widest * launch.micro_batch * 1.07) / MIB
    assert 0.99 * compute <= buffer <= 1.15 * compute


def test_weights_in_another_form_are_a_copy_and_their_pages_are_not_read_again() -> None:
    found = need_of(synthetic.llama(kind=Type.Q4_0))
    weights, mapped = found.parts["weights"] / MIB, found.places[HOST].mapped / MIB
    assert (weights, mapped) == (pytest.approx(592.5, abs=0.1), pytest.approx(35.4, abs=0.1))
    tied = need_of(synthetic.llama(layers=4, kind=Type.Q4_0, tied=True))
    assert tied.parts["weights"] / MIB == pytest.approx(165.66 + 35.16, abs=0.1)
    plain = need_of(synthetic.llama(kind=Type.Q4_0), "--no-repack")
    assert plain.places[HOST].mapped == plain.parts["weights"]


@pytest.mark.parametrize(
    ("arguments", "mapped"), [("", True), ("--no-mmap", False), ("--mlock", False), ("--no-mmap --mmap", True)]
)
def test_pages_that_the_kernel_can_drop(arguments: str, mapped: bool) -> None:
    place = need_of(MOE, arguments).places[HOST]
    assert (place.mapped > 0) == mapped
    assert place.mapped <= place.fixed


@pytest.mark.parametrize(
    ("arguments", "share"),
    [("-ctk q8_0 -ctv q8_0", 34 / 64), ("-ctk f32", 1.5), ("-ctv q4_0", (1 + 18 / 64) / 2 + 0 * 1), ("-kvu", 1.0)],
)
def test_types_of_the_cache(arguments: str, share: float) -> None:
    usual = need_of(MOE, slots=4).parts["cache"]
    assert need_of(MOE, arguments, slots=4).parts["cache"] / usual == pytest.approx(share)


def test_windows() -> None:
    model = synthetic.gemma3()
    short, long = need_of(model, context=8192), need_of(model, context=32_768)
    whole = need_of(model, "--swa-full", context=32_768)
    assert long.parts["cache"] - short.parts["cache"] == 24_576 * 4 * 2 * 2 * 256
    assert whole.parts["cache"] == 32_768 * 26 * 2 * 2 * 256
    assert long.parts["checkpoints"] > short.parts["checkpoints"]
    assert "checkpoints" not in whole.parts


def test_an_embedding_model_with_a_vocabulary_computes_logits_for_the_whole_batch() -> None:
    """It has them twice: as a result, and in its output."""
    model = synthetic.llama(layers=4, width=512, heads=8, kv_heads=8, inner=1536, vocabulary=100_000)
    found = need_of(model, "--embeddings -b 8192 -ub 8192", context=8192, slots=4)
    assert found.parts["compute"] / MIB == pytest.approx(3333 + 3125 + 16, rel=0.02)


def test_an_encoder_reserves_logits_as_well() -> None:
    """A real one took 64 MiB more than at its start after an input of 500 tokens."""
    found = need_of(synthetic.bert(), "--embeddings -b 512 -ub 512", context=512, slots=16)
    assert found.parts["compute"] / MIB == pytest.approx(64, rel=0.15)
    assert found.places[HOST].lazy == found.parts["compute"]


def test_prompt_cache() -> None:
    assert (
        estimate([MOE.header()], Companions(), ["--cache-ram", "100"], context=512, slots=1).parts["prompt cache"]
        == 100 * MIB
    )
    assert "prompt cache" not in need_of(MOE).parts
    assert "prompt cache" not in estimate([synthetic.bert().header()], Companions(), [], context=512, slots=1).parts


# ---- devices ----------------------------------------------------------------------------------------------------


def places_of(arguments: str, *devices: DeviceShare, model: SyntheticModel = MOE) -> dict[str, int]:
    return need_of(model, arguments, devices=devices or (GPU,), own_server=False).need()


def test_all_layers_on_a_device() -> None:
    found = need_of(MOE, devices=[GPU], own_server=False)
    tokens = next(tensor.size for tensor in MOE.header().tensors if tensor.name == "token_embd.weight")
    assert found.places[HOST].mapped == tokens
    assert found.need()[GPU.place] > found.parts["weights"] - tokens + found.parts["cache"]


def test_layers_on_the_host() -> None:
    needs = [places_of(f"-ngl {layers}")[GPU.place] for layers in (0, 6, 12, 13, 99)]
    assert needs == sorted(needs)
    assert needs[3] == needs[4]
    assert needs[0] < 650 * MIB
    assert places_of("-ngl 6")[HOST] > places_of("-ngl 13")[HOST]


def test_experts_on_the_host() -> None:
    experts = sum(tensor.size for tensor in MOE.header().tensors if "_exps" in tensor.name)
    whole, some, none = (places_of(arguments)[HOST] for arguments in ("--cpu-moe", "--n-cpu-moe 3", ""))
    assert whole - none == experts
    assert some - none == experts // 4
    assert places_of("-ot exps=CPU") == places_of("--cpu-moe")
    assert places_of("-ot blk.[0-2].ffn_.*_exps=CPU")[HOST] == some


@pytest.mark.parametrize("pattern", ["(a+)+=CPU", "x*x*x*x*y=CPU", "(=CPU", "=CPU", "exps"])
def test_patterns_that_are_left_out(pattern: str) -> None:
    assert places_of(f"-ot {pattern}") == places_of("")


def test_the_cache_on_the_host() -> None:
    there, here = places_of("--no-kv-offload"), places_of("")
    assert there[HOST] - here[HOST] == here[GPU.place] - there[GPU.place] == need_of(MOE).parts["cache"]


def test_two_devices() -> None:
    found = places_of("", GPU, OTHER_GPU)
    assert found[GPU.place] == pytest.approx(found[OTHER_GPU.place], rel=0.15)
    uneven = places_of("", GPU._replace(share=3.0), OTHER_GPU)
    assert uneven[GPU.place] > uneven[OTHER_GPU.place] + 200 * MIB
    assert places_of("-ot exps=CUDA1", GPU, OTHER_GPU)[OTHER_GPU.place] > 600 * MIB


def test_files_beside_the_model() -> None:
    draft = synthetic.llama(layers=2, width=256, heads=4, kv_heads=4, inner=512, vocabulary=1000).header()
    alone = need_of(MOE).need()[HOST]
    with_draft = need_of(MOE, "-md /draft.gguf", companions=Companions(draft=[draft]))
    assert with_draft.need()[HOST] - alone == with_draft.parts["draft model"]
    assert with_draft.parts["draft model"] > sum(tensor.size for tensor in draft.tensors) + 4096 * 2 * 2 * 2 * 256
    adapter = GgufHeader("llama", 0, {}, [GgufTensor("blk.0.attn_q.weight.lora_a", (4, 8), 0, 128)])
    assert need_of(MOE, companions=Companions(adapters=[adapter])).need()[HOST] - alone == 128
    projector = GgufHeader(
        "clip", 0, {"clip.vision.image_size": 32, "clip.vision.patch_size": 8}, [GgufTensor("v.x", (8, 8), 0, 256)]
    )
    assert need_of(MOE, companions=Companions(projector=projector)).need()[HOST] - alone == 256
    on_device = need_of(MOE, devices=[GPU], companions=Companions(projector=projector)).need()[GPU.place]
    assert on_device - places_of("")[GPU.place] == 256
    assert (
        need_of(MOE, "--no-mmproj-offload", devices=[GPU], companions=Companions(projector=projector)).need()[GPU.place]
        == places_of("")[GPU.place]
    )


# ---- the context ------------------------------------------------------------------------------------------------

MODELS = [MOE, synthetic.gemma3(), synthetic.mamba(), synthetic.deepseek2(), synthetic.llama(layers=3)]


@given(
    st.sampled_from(MODELS),
    st.integers(1, 128),
    st.integers(1, 8),
    st.sampled_from(["", "-kvu", "-fa off", "-ctk q8_0"]),
)
def test_a_context_that_is_chosen_needs_no_more_than_was_estimated(
    model: SyntheticModel, steps: int, slots: int, arguments: str
) -> None:
    context = 256 * steps
    automatic = need_of(model, arguments, context=0, largest=32_768, slots=slots)
    assert (automatic.context, automatic.largest_context) == (0, 32_768)
    exact = need_of(model, arguments, context=context, slots=slots)
    assert automatic.need(context)[HOST] >= exact.need()[HOST] - 16
    assert automatic.need(32_768) == pytest.approx(need_of(model, arguments, context=32_768, slots=slots).need())


@given(st.integers(1, 40_000), st.integers(1, 16), st.sampled_from(MODELS))
def test_more_context_and_more_slots_never_need_less(context: int, slots: int, model: SyntheticModel) -> None:
    one = need_of(model, context=context, slots=slots).need()[HOST]
    assert need_of(model, context=context + 256, slots=slots).need()[HOST] >= one
    assert need_of(model, context=context, slots=slots + 1).need()[HOST] >= one


@pytest.mark.parametrize("number", [0, 2**32 - 1, 2**63])
@pytest.mark.parametrize(
    "key", ["block_count", "embedding_length", "attention.head_count_kv", "attention.key_length", "all"]
)
@pytest.mark.parametrize("model", [synthetic.llama(layers=4), synthetic.bert()], ids=["llama", "bert"])
def test_numbers_that_no_model_has_make_a_bounded_estimate(model: SyntheticModel, key: str, number: int) -> None:
    header = model.header()
    names = [name for name in header.keys if name.startswith(f"{header.architecture}.")]
    changed = names if key == "all" else [f"{header.architecture}.{key}"]
    broken = header._replace(keys={**header.keys, **dict.fromkeys(changed, number)})
    found = estimate([broken], Companions(), [], context=0, slots=256, largest=2**24)
    assert len(msgspec.msgpack.encode(found))
    assert all(0 <= need < 2**63 for need in found.need(2**24).values())
