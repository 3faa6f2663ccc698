"""Fixtures for tests of the dialects: the application without a socket."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog

from gateway.decoding.base64_text import from_base64
from gateway.decoding.decoder_process import RECORDING, Budget, Decoded, DecoderSession
from gateway.decoding.image_header import image_type
from gateway.requests import request_media
from protocol.runtime import logs
from tests.gateway.app_client import AppClient


@pytest.fixture(autouse=True)
def configured_logs() -> Iterator[None]:
    """Configure the logs as a gateway does before its first request, whatever tests ran in this process before."""
    hook = sys.excepthook
    logs.configure("gateway", "warning", "json")
    yield
    sys.excepthook = hook
    structlog.reset_defaults()


@pytest.fixture
def ask(tmp_path: Path) -> AppClient:
    return AppClient(tmp_path)


class UnchangingDecoder(DecoderSession):
    """Leaves media as they are: for tests of translations with placeholder media."""

    def decode(self, kind: int, budget: Budget, data: bytes | str) -> Decoded:
        sent, file = (data.encode(), from_base64(data.encode())) if isinstance(data, str) else (data, data)
        return Decoded("mp3" if kind == RECORDING else image_type(file) or "image/png", sent, 1)


@pytest.fixture
def unchanged_media(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let media pass as they are."""
    monkeypatch.setattr(request_media, "DecoderSession", UnchangingDecoder)
