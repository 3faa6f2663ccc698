"""Writes a model of any size that takes no space on the disk: its header is real, its weights are a hole."""

from __future__ import annotations

from pathlib import Path

import gguf
import numpy as np

WIDTH, LAYERS = 4096, 32


def write_sparse_model(path: Path, size: int, context: int = 32_768) -> None:
    """Write a model of the llama architecture whose weights have about ``size`` bytes. No engine gets to read it."""
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_name(path.stem)
    writer.add_context_length(context)
    writer.add_embedding_length(WIDTH)
    writer.add_block_count(LAYERS)
    writer.add_feed_forward_length(4 * WIDTH)
    writer.add_head_count(32)
    writer.add_head_count_kv(8)
    rows = size // LAYERS // WIDTH
    for layer in range(LAYERS):
        name = f"blk.{layer}.ffn_gate.weight"
        writer.add_tensor_info(name, [rows, WIDTH], np.dtype(np.int8), rows * WIDTH)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    writer.close()
    with path.open("r+b") as file:
        file.truncate(file.seek(0, 2) + LAYERS * rows * WIDTH + LAYERS * writer.data_alignment)
