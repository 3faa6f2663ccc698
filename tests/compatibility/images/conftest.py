"""Fixtures for image tests: a server with a fake engine that draws, and the document's model, loaded."""

from __future__ import annotations

import json

import pytest

from tests.compatibility.images.image_requests import BROKEN, DOCUMENTED
from tests.conftest import StartServer
from tests.fake_engines.llama_server import program
from tests.support.images import TURBO, downloaded, safetensors
from tests.support.server import LemonbusServer


@pytest.fixture(scope="package")
def server(tmp_path_factory: pytest.TempPathFactory, start_package_server: StartServer) -> LemonbusServer:
    folder = tmp_path_factory.mktemp("pictures")
    downloaded(folder, *TURBO, safetensors())
    for file, data, _ in BROKEN.values():
        downloaded(folder, "shop/broken", file, data)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HF_HOME", str(folder))
        image_server = start_package_server(
            "tiny-chat", sdcpp_backend="system", sd_server=program(folder, "sd_server"), silence=5
        )
    entries = {name: {"checkpoint": f"shop/broken:{broken[0]}", "recipe": "sd-cpp"} for name, broken in BROKEN.items()}
    (image_server.home / "state").mkdir(exist_ok=True)
    (image_server.home / "state" / "user_models.json").write_text(json.dumps(entries))
    return image_server


@pytest.fixture
def loaded(server: LemonbusServer) -> LemonbusServer:
    """The model as the document loads it."""
    answer = server.client.post("/v1/load", DOCUMENTED)
    assert answer.status == 200, answer
    return server
