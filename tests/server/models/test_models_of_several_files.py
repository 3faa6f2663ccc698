"""Models of pictures that are made of several files, through the whole server: pulled, drawn with, shown, deleted.

Each test runs with a stand-in for sd-server, with a real ``sd-server`` on PATH, and with our server over the real library,
if these are installed.
"""

from __future__ import annotations

import importlib.util
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest

from tests.conftest import StartServer
from tests.fake_engines.llama_server import program
from tests.support.fakes.hub import Hub, gguf
from tests.support.images import pictures, safetensors
from tests.support.server import LemonbusServer
from workers.backends.sdcpp.flags import PACKAGE

PARTS: Final = {"text_encoder": "shop/encoder:Q8_0", "tae": "shop/decoder:split/tae.gguf"}
MODELS: Final = {"user.A": {"main": "shop/a:dit.gguf", **PARTS}, "user.B": {"main": "shop/b:dit.gguf", **PARTS}}

ARGUMENTS: Final = "--diffusion-fa --offload-to-cpu"


class PictureServer(NamedTuple):
    """A server, the hub that it asks, and the folder of the hub's cache."""

    lemonbus: LemonbusServer
    hub: Hub
    cache: Path

    def pull(self, model: str, **parts: str) -> Any:
        fields = {"model_name": model, "checkpoints": {**MODELS[model], **parts}, "recipe": "sd-cpp"}
        return self.lemonbus.client.post("/v1/pull", {**fields, "recipe_options": {"sdcpp_args": ARGUMENTS}})

    def files(self) -> list[str]:
        """The names of the model files in the cache, without those of blobs."""
        return sorted(
            str(path.relative_to(self.cache)).split("/")[0][8:] for path in self.cache.glob("*/snapshots/*/**/*.gguf")
        )


def _repositories(files: dict[str, bytes]) -> dict[str, dict[str, bytes]]:
    return {
        "shop/a": {"dit.gguf": files["dit"]},
        "shop/b": {"dit.gguf": files["dit"]},
        "shop/encoder": {"t-Q4_0.gguf": gguf(50), "t-Q8_0.gguf": files["llm"]},
        "shop/decoder": {"split/tae.gguf": files["tae"]},
        # What the catalogue's Qwen-Image-GGUF is made of
        "unsloth/Qwen-Image-GGUF": {"qwen-image-Q4_K_M.gguf": gguf(700, 4)},
        "unsloth/Qwen2.5-VL-7B-Instruct-GGUF": {"Qwen2.5-VL-7B-Instruct-UD-Q4_K_XL.gguf": gguf(800, 5)},
        "Comfy-Org/Qwen-Image_ComfyUI": {"split_files/vae/qwen_image_vae.safetensors": safetensors()},
    }


@pytest.fixture(scope="module", params=["stand-in", "sd-server", PACKAGE])
def running(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, start_module_server: StartServer
) -> Iterator[PictureServer]:
    tmp_path = tmp_path_factory.mktemp("pictures")
    real = request.param != "stand-in"
    settings: dict[str, Any] = {"sdcpp_backend": "cpu" if request.param == PACKAGE else "system"}
    if request.param == PACKAGE and importlib.util.find_spec(PACKAGE) is None:
        pytest.skip(f"{PACKAGE} is not installed: see CONTRIBUTING.md")
    elif request.param != PACKAGE:
        found = shutil.which("sd-server") if real else program(tmp_path, "sd_server")
        if not found:
            pytest.skip("there is no sd-server on PATH")
        settings["sd_server"] = found
    files = {name: gguf(1000 * number, number) for number, name in enumerate(("dit", "llm", "tae"), 1)}
    if real:
        from tests.support.models import diffusion_gguf  # noqa: PLC0415 - it takes what only real engines need

        diffusion_gguf.write(tmp_path)
        files = {name: (tmp_path / f"{name}.gguf").read_bytes() for name in files}
    with Hub(_repositories(files)) as hub, pytest.MonkeyPatch.context() as patch:
        patch.setenv("HF_ENDPOINT", hub.url)
        patch.setenv("HF_HOME", str(tmp_path / "hf"))
        lemonbus = start_module_server("tiny-chat", offline=False, gateway_workers=1, **settings)
        yield PictureServer(lemonbus, hub, tmp_path / "hf" / "hub")


@pytest.fixture
def server(running: PictureServer) -> Iterator[PictureServer]:
    """The server, with none of the models."""
    yield running
    for model in MODELS:
        running.lemonbus.client.post("/v1/delete", {"model_name": model})
    running.hub.transfers.clear()


def test_two_models_share_their_parts(server: PictureServer) -> None:
    client = server.lemonbus.client
    for model in MODELS:
        assert server.pull(model).status == 200
    fetched = [file for file, _ in server.hub.transfers]
    assert sorted(fetched) == ["dit.gguf", "dit.gguf", "split/tae.gguf", "t-Q8_0.gguf"]
    (shown,) = [each for each in client.get("/v1/models").json()["data"] if each["id"] == "user.A"]
    assert shown["checkpoints"] == MODELS["user.A"]

    request = {"model": "user.A", "prompt": "a cat", "size": "64x64", "steps": 1, "response_format": "b64_json"}
    answer = client.post("/v1/images/generations", request)
    assert answer.status == 200, answer
    assert [(each.width, each.height) for each in pictures(answer.json())] == [(64, 64)]
    (loaded,) = server.lemonbus.health()["all_models_loaded"]
    words = loaded["launch_command"]
    flags = {word: words[words.index(word) + 1].rpartition("/")[2] for word in ("--diffusion-model", "--llm", "--tae")}
    assert words[-2:] == ARGUMENTS.split()
    assert flags == {"--diffusion-model": "dit.gguf", "--llm": "t-Q8_0.gguf", "--tae": "tae.gguf"}

    configured = client.get("/internal/configuration?model=user.A").json()["files"]
    assert {each.get("part", "") for each in configured} == {"", "text_encoder", "tae"}
    used = {each["name"]: each for each in client.get("/internal/disk-usage").json()["items"]}
    assert used["user.A"]["shared"] == used["user.B"]["shared"] > 0

    first = client.post("/v1/delete", {"model_name": "user.A"}).json()
    assert (first["files_removed"], first["kept_for"]) == (1, ["user.B"])
    assert server.files() == ["shop--b", "shop--decoder", "shop--encoder"]
    last = client.post("/v1/delete", {"model_name": "user.B"}).json()
    assert (last["files_removed"], last["kept_for"]) == (3, [])
    assert server.files() == []


def test_a_part_that_is_missing_is_named(server: PictureServer) -> None:
    client = server.lemonbus.client
    absent = server.pull("user.A", vae="shop/decoder:none.gguf")
    assert (absent.status, absent.error["param"]) == (404, "checkpoints"), absent
    assert "its vae: shop/decoder has no file 'none.gguf'" in absent.error["message"]
    assert server.hub.transfers == []
    assert server.pull("user.A").status == 200
    other = server.pull("user.A", tae="shop/encoder:Q4_0")
    assert (other.status, other.error["param"]) == (409, "checkpoints"), other

    (decoder,) = server.cache.glob("*decoder/snapshots/*/split/tae.gguf")
    blob = decoder.resolve()
    blob.write_bytes(blob.read_bytes()[:10])
    broken = client.post("/v1/load", {"model_name": "user.A"})
    assert broken.status >= 400
    assert "its tae cannot be read: it is truncated" in broken.error["message"]
    decoder.unlink()
    blob.unlink()
    server.hub.transfers.clear()
    assert client.post("/v1/load", {"model_name": "user.A"}).status == 200
    assert [file for file, _ in server.hub.transfers] == ["split/tae.gguf"]


def test_a_model_of_the_catalogue_whose_parts_another_one_has_is_not_here(server: PictureServer) -> None:
    client = server.lemonbus.client
    assert client.post("/v1/pull", {"model_name": "Qwen-Image-GGUF"}).status == 200
    listed = {each["id"]: each["downloaded"] for each in client.get("/v1/models?show_all=true").json()["data"]}
    assert (listed["Qwen-Image-GGUF"], listed["Qwen-Image-2512-GGUF"]) == (True, False)
    assert client.post("/v1/delete", {"model_name": "Qwen-Image-2512-GGUF"}).status == 404
    used = {each["name"]: each for each in client.get("/internal/disk-usage").json()["items"]}
    assert "Qwen-Image-2512-GGUF" not in used
    deleted = client.post("/v1/delete", {"model_name": "Qwen-Image-GGUF"}).json()
    assert (deleted["files_removed"], deleted["kept_for"]) == (3, [])
