"""Where llama.cpp puts a model's tensors and layers: on the host or on which device. Pure."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import Final, NamedTuple

from protocol.models.memory import HOST
from workers.backends.llamacpp.flags import ALL_LAYERS, FLAGS
from workers.backends.llamacpp.memory.model_shape import layer_of
from workers.files.gguf import GgufTensor

_EXPERTS: Final = r"ffn_(up|down|gate|gate_up)_(ch|)exps"
_TOKENS: Final = "token_embd.weight"
_OUTPUT: Final = "output.weight"
_REPACKED: Final = frozenset({2, 12, 20})
"""Types (Q4_0, Q4_K, IQ4_NL) of which llama.cpp on a processor with AVX2 or NEON makes a copy of another form."""
_MAX_REPETITIONS: Final = 3
_REPEATED_GROUP: Final = re.compile(r"\)[*+{]")


class DeviceShare(NamedTuple):
    """A device that an engine computes on, and its share of the layers, in any unit: its free memory, for example."""

    place: str
    share: float
    name: str = ""
    """The engine's own name for it: ``CUDA0``."""


class Override(NamedTuple):
    """Tensors whose names match are elsewhere."""

    pattern: re.Pattern[str]
    place: str


class TensorPlacement(NamedTuple):
    """Where each layer is. The layer after the last one is the output."""

    layers: tuple[str, ...]
    places: tuple[str, ...]
    """The devices that are used."""
    overrides: tuple[Override, ...] = ()

    @property
    def main(self) -> str:
        """The first device; empty if there is none."""
        return self.places[0] if self.places else ""

    @property
    def is_complete(self) -> bool:
        """Whether all layers are on devices."""
        return bool(self.layers) and HOST not in self.layers

    def of_layer(self, layer: int) -> str:
        """Return the place of a layer."""
        return self.layers[layer] if 0 <= layer < len(self.layers) else HOST

    def of_tensor(self, name: str) -> str:
        """Return the place of a tensor."""
        for override in self.overrides:
            if override.pattern.search(name):
                return override.place
        layer = layer_of(name)
        if layer is not None:
            return self.of_layer(layer)
        return HOST if name.startswith(("token_", "position_embd", "per_layer_token")) else self.layers[-1]


def cpu_experts(words: Sequence[str]) -> list[str]:
    """Return the overrides that ``--n-cpu-moe`` and ``--cpu-moe`` stand for."""
    given = FLAGS.last_of(words, "--n-cpu-moe", "--cpu-moe")
    if given is None:
        return []
    if given == "--cpu-moe":
        return [f"{_EXPERTS}=CPU"]
    value = FLAGS.value_of(words, "--n-cpu-moe") or ""
    layers = min(int(value), ALL_LAYERS) if value.isdecimal() else 0
    return [rf"blk\.({'|'.join(map(str, range(layers)))})\.{_EXPERTS}=CPU"] if layers else []


def split_layers(
    count: int, gpu_layers: int, devices: Sequence[DeviceShare], overrides: Sequence[str]
) -> TensorPlacement:
    """Spread the last ``gpu_layers`` of ``count`` layers, and the output, over devices."""
    on_devices = min(gpu_layers, count + 1) if devices else 0
    total = sum(device.share for device in devices)
    ends = list(accumulate((device.share / total if total else 1 / len(devices)) for device in devices))
    start = count + 1 - on_devices
    layers = []
    for layer in range(count + 1):
        index = bisect_right(ends, (layer - start) / on_devices) if layer >= start else 0
        layers.append(devices[min(index, len(devices) - 1)].place if layer >= start else HOST)
    return TensorPlacement(
        tuple(layers), tuple(dict.fromkeys(device.place for device in devices)), tuple(_overrides(overrides, devices))
    )


def _overrides(texts: Sequence[str], devices: Sequence[DeviceShare]) -> Iterator[Override]:
    """Read ``PATTERN=BUFFER``. A pattern that could take long to match is left out: the estimate is then without it."""
    places = {device.name: device.place for device in devices}
    for text in texts:
        pattern, _, buffer = text.rpartition("=")
        if not pattern or _REPEATED_GROUP.search(pattern) or len(re.findall(r"[*+{]", pattern)) > _MAX_REPETITIONS:
            continue
        try:
            yield Override(re.compile(pattern), places.get(buffer, HOST))
        except re.error:
            continue


def tensor_places(tensors: Sequence[GgufTensor], placement: TensorPlacement) -> Iterator[tuple[GgufTensor, str]]:
    """Yield each tensor with its place. Without an output matrix, the output has the embeddings of the tokens.

    They are copied if they are needed on a device or in another form.
    """
    names = {tensor.name for tensor in tensors}
    for tensor in tensors:
        yield tensor, placement.of_tensor(tensor.name)
        if tensor.name == _TOKENS and _OUTPUT not in names:
            output = tensor._replace(name=_OUTPUT)
            if placement.layers[-1] != HOST or is_repacked(output, placement):
                yield output, placement.of_tensor(_OUTPUT)


def is_repacked(tensor: GgufTensor, placement: TensorPlacement) -> bool:
    """Return whether the processor computes with a copy of a tensor in another form."""
    return (
        not placement.places
        and tensor.name.startswith(("blk.", _OUTPUT))
        and tensor.kind in _REPACKED
        and len(tensor.shape) > 1
        and tensor.shape[1] % 8 == 0
    )
