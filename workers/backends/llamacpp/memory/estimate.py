"""The memory that a llama-server needs: from the headers of its files and its command line, before it is started. Pure.

``docs/memory.md`` compares this with what engines really took. The sizes of buffers are those of llama.cpp b11549, whose log
names them at debug level.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Final

from protocol.models.memory import HOST, MemoryEstimate, PlaceNeed
from workers.backends.llamacpp.flags import ALL_LAYERS, FLAGS
from workers.backends.llamacpp.memory.caches import CELL_STEP, cache_bytes, cells, checkpoint_bytes
from workers.backends.llamacpp.memory.companions import Companions
from workers.backends.llamacpp.memory.launch import MIB, Launch, number_reader, read_launch
from workers.backends.llamacpp.memory.model_shape import MAX_LAYERS, ModelShape, model_shape
from workers.backends.llamacpp.memory.tensor_placement import (
    DeviceShare,
    TensorPlacement,
    cpu_experts,
    is_repacked,
    split_layers,
    tensor_places,
)
from workers.files.gguf import GgufHeader, GgufTensor

MOST_BYTES: Final = 2**50
MOST_PER_TOKEN: Final = 2.0**28
"""More than any model needs: what a header says must not become a number that no message can carry."""
PROCESS_BYTES: Final = 13 * MIB
"""What our own server keeps beside the model: Python and the library's data."""
OTHER_PROCESS_BYTES: Final = 30 * MIB
"""The same of another program."""
DEVICE_PROCESS_BYTES: Final = 400 * MIB
"""What a program keeps in the host's memory for its devices."""
DEVICE_CONTEXT_BYTES: Final = 530 * MIB
"""What a program keeps on a device beside the model: the driver's context, kernels, workspace. Measured with CUDA 13 on an H100."""
TOKEN_BYTES: Final = 230
"""What a token of the vocabulary takes in tables."""
MERGE_BYTES: Final = 280
"""The same of a merge of two tokens."""
SAMPLING_BYTES: Final = 12
"""A candidate token while a slot chooses its next one."""
_FLASH_WIDTHS: Final = frozenset({40, 64, 72, 80, 96, 112, 128, 192, 256, 576})
"""Widths of heads for which devices have a kernel without a matrix of scores; the processor has one for every width."""
_SCORE_BYTES: Final = 4
_MASK_BYTES: Final = 2
_WORK_SHARE: Final = 1.07
"""Bytes of the processor's copy of an intermediate result, for each of its elements. It copies scores in 16 bits."""


class _Need:
    """Bytes by part and place, while they are added up."""

    def __init__(self) -> None:
        self.parts: dict[str, int] = defaultdict(int)
        self.places: dict[str, float] = defaultdict(float)
        self.mapped: dict[str, int] = defaultdict(int)
        self.lazy: dict[str, float] = defaultdict(float)

    def add(self, part: str, place: str, size: float, *, mapped: bool = False, lazy: bool = False) -> None:
        self.parts[part] += round(size)
        self.places[place] += size
        if mapped:
            self.mapped[place] += round(size)
        if lazy:
            self.lazy[place] += size


def estimate(
    headers: Sequence[GgufHeader],
    companions: Companions,
    words: Sequence[str],
    *,
    context: int,
    slots: int,
    largest: int = 0,
    devices: Sequence[DeviceShare] = (),
    own_server: bool = True,
) -> MemoryEstimate:
    """Return what a server with these files and this command line needs.

    ``context``: tokens of each slot; if it is to be chosen, 0, and ``largest`` says up to which. ``devices``: those that it
    computes on, in the order of its own numbers; none if it uses the processor alone.
    """
    at = context or largest or CELL_STEP
    need = _needs(headers, companions, read_launch(words, at, slots), words, devices, own_server)
    # The need grows with the context at most linearly, so the line through both ends is never too low in between.
    least = _needs(
        headers, companions, read_launch(words, 0, slots)._replace(context=0), words, devices, own_server, at
    )
    places = {}
    for place in need.places:
        slope = max(0.0, need.places[place] - least.places.get(place, 0.0)) / (at * slots)
        places[place] = PlaceNeed(
            fixed=_bounded(need.places[place] - slope * at * slots),
            per_token=min(slope, MOST_PER_TOKEN),
            mapped=need.mapped.get(place, 0),
            lazy=_bounded(need.lazy.get(place, 0)),
        )
    parts = {part: _bounded(size) for part, size in need.parts.items()}
    return MemoryEstimate(places, context, largest if not context else 0, slots, parts)


def _bounded(size: float) -> int:
    """Return bytes as a number that fits into messages, whatever a broken header says."""
    return round(min(size, MOST_BYTES))


def _needs(
    headers: Sequence[GgufHeader],
    companions: Companions,
    launch: Launch,
    words: Sequence[str],
    devices: Sequence[DeviceShare],
    own_server: bool,
    windows: int = 0,
) -> _Need:
    """Add everything up. ``windows``: the context that counts for sliding windows, if it is another one."""
    need = _Need()
    shape = model_shape(headers)
    tensors = [tensor for header in headers for tensor in header.tensors]
    overrides = [*cpu_experts(words), *(FLAGS.value_of(words, "-ot") or "").split(",")]
    placement = split_layers(len(shape.layers) or _blocks(headers), launch.gpu_layers, devices, overrides)
    _add_model(need, tensors, shape, launch, placement, windows)
    _add_process(need, shape, launch, placement, own_server)
    if launch.prompt_cache and shape.cached and not launch.embeds:
        need.add("prompt cache", HOST, launch.prompt_cache, lazy=True)
    if companions.draft:
        number = number_reader(words)
        draft = launch._replace(
            key_type=FLAGS.value_of(words, "--cache-type-k-draft") or "f16",
            value_type=FLAGS.value_of(words, "--cache-type-v-draft") or "f16",
            gpu_layers=number(ALL_LAYERS, "-ngld"),
        )
        other = _Need()
        drafts = model_shape(companions.draft)
        spread = split_layers(len(drafts.layers) or _blocks(companions.draft), draft.gpu_layers, devices, ())
        _add_model(
            other, [each for header in companions.draft for each in header.tensors], drafts, draft, spread, windows
        )
        need.parts["draft model"] += sum(other.parts.values())
        need.add("draft model", HOST, _vocabulary_bytes(drafts))
        for place, size in other.places.items():
            need.places[place] += size
            need.mapped[place] += other.mapped[place]
            need.lazy[place] += other.lazy[place]
    device = placement.main
    if companions.projector is not None:
        offloaded = FLAGS.last_of(words, "--no-mmproj-offload", "--mmproj-offload") != "--no-mmproj-offload"
        place = device if device and offloaded else HOST
        need.add("projector", place, sum(tensor.size for tensor in companions.projector.tensors))
        need.add("projector", place, _projector_buffers(companions.projector), lazy=True)
    for adapter in companions.adapters:
        for tensor in adapter.tensors:
            need.add("adapters", placement.of_tensor(tensor.name.rpartition(".lora_")[0]), tensor.size)
    return need


def _blocks(headers: Sequence[GgufHeader]) -> int:
    value = headers[0].keys.get(f"{headers[0].architecture}.block_count", 0)
    return max(1, min(value, MAX_LAYERS)) if isinstance(value, int) else 1


def _add_model(
    need: _Need,
    tensors: Sequence[GgufTensor],
    shape: ModelShape,
    launch: Launch,
    placement: TensorPlacement,
    windows: int,
) -> None:
    """Add weights, caches and compute buffers."""
    transfer = 0
    for tensor, place in tensor_places(tensors, placement):
        if place != HOST:
            need.add("weights", place, tensor.size)
            continue
        # A copy in another form takes the place of the file's pages, which are not read again.
        mapped = launch.mapped and not launch.locked and not (launch.repacks and is_repacked(tensor, placement))
        need.add("weights", HOST, tensor.size, mapped=mapped)
        if placement.main and tensor.name != "token_embd.weight":
            transfer = max(transfer, tensor.size)
    for layer, cache in enumerate(shape.layers):
        place = placement.of_layer(layer) if launch.cache_on_device else HOST
        need.add("cache", place, cache_bytes(cache, launch, windows))
        if kept := checkpoint_bytes(cache, launch, windows):
            need.add("checkpoints", HOST, kept, lazy=True)
    for place in (HOST, *placement.places):
        size = compute_bytes(shape, launch, place, windows, unused=place == HOST and placement.is_complete)
        need.add("compute", place, size + (transfer if place != HOST else 0), lazy=True)
    # A model that makes vectors reserves the logits of every token of a batch, although it makes none.
    outputs = (
        launch.micro_batch * (shape.vocabulary + shape.width) if launch.embeds else launch.slots * shape.vocabulary
    )
    need.add("compute", HOST, 4 * outputs, lazy=launch.embeds)


def compute_bytes(shape: ModelShape, launch: Launch, place: str, windows: int = 0, *, unused: bool = False) -> float:
    """Return the intermediate results of a batch. ``unused``: only its input is made there."""
    batch = launch.micro_batch
    seen = {cells(cache, launch, windows) for cache in shape.layers if cache.key} if shape.cached else {batch}
    masks = sum(seen) * batch * _MASK_BYTES
    if unused:
        return masks + 2 * shape.width * batch * 4
    scores = 0.0
    if not launch.flash or (place != HOST and shape.head_width not in _FLASH_WIDTHS):
        scores = max(seen, default=0) * batch * shape.heads * _SCORE_BYTES + masks
    logits = shape.vocabulary * batch if launch.embeds and shape.cached else 0
    elements = max(shape.feed_forward * batch, logits + 5 * shape.width * batch)
    held = max(elements * 4, shape.attention * batch * 4 + scores)
    copied = max(shape.widest * batch * _WORK_SHARE, scores / 2 if shape.cached else 0)
    return masks + held + (copied if place == HOST else 0)


def _add_process(need: _Need, shape: ModelShape, launch: Launch, placement: TensorPlacement, own_server: bool) -> None:
    beside = PROCESS_BYTES if own_server else OTHER_PROCESS_BYTES
    need.add("process", HOST, beside + _vocabulary_bytes(shape) + (DEVICE_PROCESS_BYTES if placement.places else 0))
    if shape.cached and not launch.embeds:
        need.add("compute", HOST, SAMPLING_BYTES * shape.vocabulary * launch.slots, lazy=True)
    for place in placement.places:
        need.add("process", place, DEVICE_CONTEXT_BYTES)


def _vocabulary_bytes(shape: ModelShape) -> int:
    return TOKEN_BYTES * shape.vocabulary + MERGE_BYTES * shape.merges


def _projector_buffers(header: GgufHeader) -> float:
    """Return the intermediate results for one picture of the largest size that the projector takes whole."""
    numbers: Mapping[str, object] = header.keys

    def number(name: str) -> int:
        value = numbers.get(f"clip.vision.{name}")
        return int(value) if isinstance(value, int | float) else 0

    patches = (number("image_size") // max(1, number("patch_size"))) ** 2
    scores = patches * number("attention.head_count")
    return patches * 4 * (3 * number("feed_forward_length") + 6 * number("embedding_length") + scores)
