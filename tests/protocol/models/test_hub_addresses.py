"""Addresses of a hub, as a browser shows them, mean checkpoints."""

from __future__ import annotations

import pytest

from protocol.failures import LemonbusError
from protocol.models import checkpoints
from protocol.models.checkpoints import HubCheckpoint
from protocol.models.hub_addresses import checkpoint_from_address

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
