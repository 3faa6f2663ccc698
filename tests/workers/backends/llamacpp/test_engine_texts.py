"""The lines that llama.cpp prints: their level, and texts of clients in them."""

from __future__ import annotations

import pytest

from workers.backends.llamacpp.engine_texts import file_problem, load_problem, parse_line

PREFIX = b"0.00.001.527 "


@pytest.mark.parametrize(
    ("line", "level"),
    [
        (b"I srv   load_model: loading", "debug"),
        (b"W load: odd", "warning"),
        (b"E srv    send_error: no", "debug"),
        (b"E srv    load_model: no", "error"),
        (b"W srv          stop: cancel task, id_task = 2", "debug"),
        (b"D hm", "debug"),
        (b"I slot   release: id 0", "debug"),
        (b"E slot   release: id 0", "error"),
        (b"W Wrong type supplied for parameter 'id', using default value: a b", "debug"),
        (b"E failed to parse grammar", "debug"),
        (b"E srv  process_sing: failed to launch slot with task, id_task = 23", "debug"),
        (b'W srv    operator(): got exception: {"error":{"message":"mine"}}', "trace"),
        (b"W common_sampler_types_from_names: unable to match sampler by name 'mine'", "trace"),
        (b"E llg error: mine", "trace"),
    ],
)
@pytest.mark.parametrize("asked", [True, False])
def test_a_line_with_a_level(line: bytes, level: str, asked: bool) -> None:
    assert parse_line(PREFIX + line, asked) == (level, line[2:].decode())


@pytest.mark.parametrize(
    "line",
    [
        b"Illegal instruction",
        b"/a/b/ggml.c:123: GGML_ASSERT(a) failed",
        b"terminate called after throwing an instance of 'x'",
        b"#3  0x00007f in ggml_abort",
        b"/usr/lib/libggml.so(+0x123) [0x7f]",
        b"Fatal Python error: Segmentation fault",
    ],
)
def test_the_last_lines_of_an_engine_are_logged(line: bytes) -> None:
    assert parse_line(line, asked=True) == ("info", line.decode())


def test_after_the_first_request_a_line_without_a_level_may_be_a_clients_text() -> None:
    assert parse_line(b"root ::= mine \xff", asked=False) == ("info", "root ::= mine \ufffd")
    assert parse_line(b"root ::= mine", asked=True) == ("trace", "root ::= mine")


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (
            "error loading model: unknown model architecture: 'qwen9'",
            "this llama-server does not know the model's architecture, qwen9",
        ),
        (
            "error loading model: tensor 'a' data is not within the file bounds, model is corrupted or incomplete",
            "broken",
        ),
        ("error loading model: check_tensor_dims: tensor 'output_norm.weight' not found", "broken"),
        ("error loading model hyperparameters: key not found in model: llama.context_length", "broken"),
        ("error loading model: unable to allocate CPU buffer", ""),
        ("failed to load model '/srv/a.gguf'", ""),
        ("", ""),
    ],
)
def test_what_is_wrong_with_a_file(line: str, expected: str) -> None:
    found = file_problem(f"srv  init: loading model\nllama_model_load: {line}\nexiting due to model loading error")
    assert expected in found
    assert bool(found) == bool(expected)
    assert "/" not in found


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (
            (
                "ggml_backend_cuda_buffer_type_alloc_buffer: allocating 3714.46 MiB on device 0: cudaMalloc failed: out of memory\n"
                "alloc_tensor_range: failed to allocate CUDA0 buffer of size 3894894592\n"
                "llama_model_load: error loading model: unable to allocate CUDA0 buffer"
            ),
            "the memory of CUDA0 is not enough for 3,714 MiB more. Unload another model, or load this one with a smaller",
        ),
        (
            'error while handling argument "--device": invalid device: CUDA7\nusage:\n-dev, --device <dev1,dev2,..>',
            "llama-server does not know the device CUDA7. `llama-server --list-devices` shows",
        ),
        ("failed to load model '/srv/a.gguf'", ""),
    ],
)
def test_what_a_machine_lacks_for_a_load(lines: str, expected: str) -> None:
    found = load_problem(f"srv  init: loading model\n{lines}\nexiting due to model loading error")
    assert found.startswith(expected)
    assert bool(found) == bool(expected)
    assert file_problem(lines) == "", "another try may succeed"
