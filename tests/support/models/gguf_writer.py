"""Writes a GGUF file; weights that do not matter are seeded noise."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import gguf
import numpy as np
from numpy.typing import NDArray

Weights = NDArray[np.float32]


class GgufFile:
    """One GGUF file being written: metadata through ``meta``, tensors through the methods."""

    def __init__(self, meta: gguf.GGUFWriter, seed: int) -> None:
        self.meta = meta
        self._random = np.random.default_rng(seed)

    def noise(self, *shape: int, scale: float = 1.0) -> Weights:
        return (self._random.standard_normal(shape) * scale).astype(np.float32)

    def put(self, name: str, weights: Weights) -> None:
        self.meta.add_tensor(name, np.ascontiguousarray(weights, np.float32))

    def put_noise(self, name: str, *shape: int, scale: float) -> None:
        self.put(name, self.noise(*shape, scale=scale))

    def put_ones(self, name: str, size: int) -> None:
        self.put(name, np.ones(size, np.float32))

    def put_zeros(self, name: str, *shape: int) -> None:
        self.put(name, np.zeros(shape, np.float32))

    def put_norm(self, name: str, size: int) -> None:
        """A layer norm that changes nothing: weight one, bias zero."""
        self.put_ones(f"{name}.weight", size)
        self.put_zeros(f"{name}.bias", size)


@contextmanager
def new_gguf_file(path: Path, architecture: str, name: str, seed: int) -> Iterator[GgufFile]:
    """Yield a :class:`GgufFile`; the file is complete when the block ends."""
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_name(name)
    writer.add_file_type(gguf.LlamaFileType.ALL_F32)
    yield GgufFile(writer, seed)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
