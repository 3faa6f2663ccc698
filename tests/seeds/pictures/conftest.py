"""What tests of pictures share: a server with a stand-in that draws, and the model as the document loads it."""

from __future__ import annotations

import json

import pytest

from tests.conftest import OpenHouse
from tests.engines.engine import program
from tests.house.pictures import TURBO, downloaded, safetensors
from tests.house.server import Server
from tests.seeds.pictures.drawing import BROKEN, DOCUMENTED


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory, open_for_all: OpenHouse) -> Server:
    folder = tmp_path_factory.mktemp("pictures")
    downloaded(folder, *TURBO, safetensors())
    for file, data, _ in BROKEN.values():
        downloaded(folder, "shop/broken", file, data)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HF_HOME", str(folder))
        house = open_for_all("tiny-chat", sdcpp_backend="system", sd_server=program(folder, "sd_server"), silence=5)
    entries = {name: {"checkpoint": f"shop/broken:{broken[0]}", "recipe": "sd-cpp"} for name, broken in BROKEN.items()}
    (house.home / "state").mkdir(exist_ok=True)
    (house.home / "state" / "user_models.json").write_text(json.dumps(entries))
    return house


@pytest.fixture
def loaded(server: Server) -> Server:
    """The model as the document loads it."""
    answer = server.client.post("/v1/load", DOCUMENTED)
    assert answer.status == 200, answer
    return server
