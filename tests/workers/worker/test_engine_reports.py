"""Which words of an engine's command line are hidden."""

from __future__ import annotations

import pytest

from workers.worker.engine_reports import without_secrets


@pytest.mark.parametrize(
    ("command", "shown"),
    [
        ("llama-server -m /m.gguf --port 1", "llama-server -m /m.gguf --port 1"),
        ("llama-server --api-key abc --port 1", "llama-server --api-key *** --port 1"),
        ("llama-server --api-key=abc", "llama-server --api-key=***"),
        ("llama-server --hf-token abc", "llama-server --hf-token ***"),
        ("llama-server --api-key --port 1", "llama-server --api-key *** 1"),
        ("llama-server --api-key-file /k --cache-type-k q8_0", "llama-server --api-key-file /k --cache-type-k q8_0"),
        ("server --Password x --keep 5", "server --Password *** --keep 5"),
    ],
)
def test_values_of_secret_flags_are_hidden(command: str, shown: str) -> None:
    assert without_secrets(command.split()) == shown.split()
