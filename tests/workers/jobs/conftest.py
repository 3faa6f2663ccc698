"""Fixtures for tests of jobs: a repository on a local hub, a release server, and an environment of their own."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.fakes.hub import Hub, gguf
from tests.support.fakes.release_server import ReleaseServer, llama_server
from tests.support.fakes.wheels import make_wheel
from tests.workers.jobs.in_process_downloader import InProcessDownloader
from tests.workers.jobs.install_orders import NAME
from tests.workers.jobs.job_runner import JobRunner

REPOSITORY = "shop/tiny-GGUF"
MODEL = gguf(3_000_000)
PROJECTOR = gguf(5004, seed=2)
MEMBER = "data/tiny.gguf"


@pytest.fixture
def hub() -> Iterator[Hub]:
    with Hub({REPOSITORY: {"tiny-Q4_0.gguf": MODEL, "tiny-Q8_0.gguf": gguf(64), "mmproj-F16.gguf": PROJECTOR}}) as hub:
        yield hub


@pytest.fixture(scope="session")
def model_wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel with a model: to compress that takes longer than many a test."""
    return make_wheel(tmp_path_factory.mktemp("wheel"), "tiny-model", "1.0", {MEMBER: MODEL})


@pytest.fixture
def environment(tmp_path: Path, hub: Hub, model_wheel: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    wheels = tmp_path / "wheels"
    wheels.mkdir()
    shutil.copy(model_wheel, wheels)
    monkeypatch.delenv("PIP_INDEX_URL", raising=False)
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    return {
        "HF_ENDPOINT": hub.url,
        "PIP_CONFIG_FILE": os.devnull,
        "PIP_NO_INDEX": "1",
        "PIP_FIND_LINKS": str(wheels),
        "PIP_EXTRA_INDEX_URL": "",
    }


@pytest.fixture
def runner(tmp_path: Path, environment: dict[str, str]) -> Iterator[JobRunner]:
    with JobRunner(tmp_path / "cache", environment) as runner:
        yield runner


@pytest.fixture
def downloader(
    tmp_path: Path, environment: dict[str, str], hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> Iterator[InProcessDownloader]:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    downloader = InProcessDownloader(tmp_path / "cache", environment["HF_ENDPOINT"], tmp_path / "hf", monkeypatch)
    yield downloader
    downloader.close()


@pytest.fixture
def releases() -> Iterator[ReleaseServer]:
    with ReleaseServer({NAME: llama_server(padding=300_000)}) as releases:
        yield releases
