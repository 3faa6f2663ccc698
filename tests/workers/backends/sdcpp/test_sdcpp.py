"""The sd-cpp recipe: its command line, program, files, and the lines of its engine."""

from __future__ import annotations

import json
import re
import struct
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import strategies as st

from protocol.config.settings import Settings
from protocol.failures import Code, LemonbusError
from protocol.models import installations
from protocol.models.installations import InstallationRecord
from protocol.models.memory import HOST
from protocol.models.recipes import ModelSpec
from tests.support.accepted_share import accepted_share
from tests.support.fakes.hub import gguf
from tests.support.images import safetensors
from workers.backends.engine_facts import ModelFacts
from workers.backends.flag_table import FlagError
from workers.backends.registry import ARGUMENT_CHECKS
from workers.backends.sdcpp import flags
from workers.backends.sdcpp.backend import NETWORK_BYTES_PER_PIXEL, TILE_BYTES, SdCppBackend
from workers.worker.load_check import check_model

OPTIONS = {"steps": 4, "cfg_scale": 1.0, "width": 512, "height": 768}


@pytest.fixture
def program(tmp_path: Path) -> str:
    path = tmp_path / "sd-server"
    path.write_text("#!/bin/sh\n")
    path.chmod(0o700)
    return str(path)


def made(
    program: str = "sd-server",
    backend: str = "system",
    file: str = "/m/x.gguf",
    parts: dict[str, str] | None = None,
    **options: Any,
) -> SdCppBackend:
    spec = ModelSpec("user.x", "a/b", "sd-cpp", backend, "image", file, parts=parts or {}, options=options)
    return SdCppBackend(spec, Settings(sd_server=program, cache_dir="/home"))


def test_the_command_line(program: str) -> None:
    assert made(program, **OPTIONS, threads=3).command(5) == [
        *(program, "--listen-ip", "127.0.0.1", "--listen-port", "5", "-m", "/m/x.gguf"),
        *("--steps", "4", "--cfg-scale", "1.0", "-W", "512", "-H", "768", "-t", "3"),
    ]
    plain = made(program).command(5)
    assert plain[-8:] == ["--steps", "20", "--cfg-scale", "7.0", "-W", "512", "-H", "512"]


def test_a_sampling_method_and_a_shift_are_only_named_if_they_are_set(program: str) -> None:
    assert made(program, sampling_method="euler", flow_shift=3.0).command(5)[-4:] == [
        *("--sampling-method", "euler", "--flow-shift", "3.0")
    ]
    for method, shift in (("", 0), ("default", 0.0)):
        assert made(program, sampling_method=method, flow_shift=shift).command(5)[-2:] == ["-H", "512"]


def test_the_memory() -> None:
    """A picture of 512 by 512 takes 2.2 GB beside the model, mostly for its decoder, unless that works in tiles."""
    usual, tiled, small = made(), made(sdcpp_args="--vae-tiling"), made(width=64, height=64)
    for each in (usual, tiled, small):
        each.model_facts = ModelFacts(1000)
    assert usual.memory().parts["compute"] / 1e6 == pytest.approx(2321, abs=1)
    assert tiled.memory().parts["compute"] == 512 * 512 * NETWORK_BYTES_PER_PIXEL + TILE_BYTES
    assert small.memory().need() == {HOST: 1000 + small.memory().parts["compute"] + small.memory().parts["process"]}
    assert usual.memory().need()[HOST] > tiled.memory().need()[HOST] > small.memory().need()[HOST]


def test_a_text_encoder_beside_it_makes_the_models_file_a_diffusion_model(program: str) -> None:
    alone = made(program, sdcpp_args="--vae /m/vae.gguf --fa").command(5)
    assert "-m" in alone
    assert alone[-3:] == ["--vae", "/m/vae.gguf", "--fa"]
    parted = made(program, sdcpp_args="--llm /m/llm.gguf --tae /m/tae.gguf").command(5)
    assert parted[parted.index("--diffusion-model") + 1] == "/m/x.gguf"
    assert "-m" not in parted


PARTS = {"text_encoder": "/m/llm.gguf", "clip_l": "/m/clip.gguf", "t5xxl": "/m/t5.gguf", "vae": "/m/vae.gguf"}


def test_each_part_has_its_flag_and_the_operators_arguments_come_last(program: str) -> None:
    words = made(program, parts=PARTS, sdcpp_args="--diffusion-fa --vae /m/other.gguf").command(5)
    assert words[5:15] == [
        *("--diffusion-model", "/m/x.gguf", "--llm", "/m/llm.gguf", "--clip_l", "/m/clip.gguf"),
        *("--t5xxl", "/m/t5.gguf", "--vae", "/m/vae.gguf"),
    ]
    assert words[-3:] == ["--diffusion-fa", "--vae", "/m/other.gguf"]
    whole = made(program, parts={"vae": "/m/vae.gguf"}).command(5)
    assert whole[5:9] == ["-m", "/m/x.gguf", "--vae", "/m/vae.gguf"]


def test_every_part_has_a_flag_that_our_program_knows() -> None:
    assert set(flags.PART_FLAGS.values()) <= flags.PARTS


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (None, "its vae is missing"),
        (gguf(100)[:10], "its vae cannot be read: it is truncated"),
        (b"<html>not found</html>", "its vae cannot be read: it is not a safetensors file"),
    ],
)
def test_a_part_that_is_missing_or_broken_is_named(
    tmp_path: Path, program: str, data: bytes | None, reason: str
) -> None:
    model, vae = tmp_path / "x.gguf", tmp_path / ("vae.gguf" if data and data.startswith(b"GGUF") else "vae.bin")
    model.write_bytes(gguf(100))
    if data is not None:
        vae.write_bytes(data)
    backend = made(program, file=str(model), parts={"vae": str(vae)})
    with pytest.raises(LemonbusError, match=re.escape(reason)):
        check_model(backend.spec, backend)


def test_all_parts_count_as_weights(tmp_path: Path, program: str) -> None:
    for name, size in (("x", 100), ("t", 300), ("v", 500)):
        (tmp_path / f"{name}.gguf").write_bytes(gguf(size))
    backend = made(
        program,
        file=str(tmp_path / "x.gguf"),
        parts={"text_encoder": str(tmp_path / "t.gguf"), "vae": str(tmp_path / "v.gguf")},
    )
    assert check_model(backend.spec, backend)[0].estimate.parts["weights"] == 900


def test_our_own_program_and_an_installed_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / flags.PACKAGE).mkdir()
    (tmp_path / flags.PACKAGE / "__init__.py").touch()
    (tmp_path / f"{flags.PACKAGE}_python-0.4.7.dist-info").mkdir()
    monkeypatch.syspath_prepend(str(tmp_path))
    spec = ModelSpec("x", "a/b", "sd-cpp", "cpu", "image", "/m/x.gguf", options={"sdcpp_args": "--nope"})
    settings = Settings(cache_dir=str(tmp_path), api_key="k")
    ours = SdCppBackend(spec, settings)
    assert ours.command(5)[:3] == [sys.executable, "-m", "workers.engine_servers.sd_server"]
    assert ours.environment({"PYTHONPATH": "p"})[flags.KEY] == ours.key != "k"
    assert ours.facts(b'{"data":[]}').version == "0.4.7"
    with pytest.raises(LemonbusError, match="unknown argument --nope"):
        ours.check()

    folder = installations.backend_folder(str(tmp_path), "sd-cpp", "cpu") / "b1-abc"
    (folder / "files").mkdir(parents=True)
    (folder / "files" / "sd-server").touch()
    (folder / installations.RECORD_FILE).write_bytes(
        json.dumps(
            {"recipe": "sd-cpp", "backend": "cpu", "version": "b1", "digest": "abc", "program": "sd-server"}
        ).encode()
    )
    assert installations.find_installations(str(tmp_path), "sd-cpp", "cpu")[0].record == InstallationRecord(
        "sd-cpp", "cpu", "b1", "abc", "sd-server"
    )
    release = SdCppBackend(spec, settings)
    release.check()
    assert release.command(5)[0] == str(folder / "files" / "sd-server")
    assert release.environment({"PYTHONPATH": "p"})["LD_LIBRARY_PATH"] == str(folder / "files")
    assert release.facts(b'{"data":[]}').version == "b1"


@pytest.mark.parametrize(
    ("backend", "words"),
    [
        ("system", ["no-such-server"]),
        ("vulkan", ["sd-cpp:vulkan"]),
        ("cpu", ["sd-cpp:cpu", "pip install 'lemonbus[sdcpp]'"]),
    ],
)
def test_a_missing_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, backend: str, words: list[str]) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: None)
    with pytest.raises(LemonbusError) as raised:
        made(str(tmp_path / "no-such-server"), backend).check()
    message = raised.value.failure.message
    assert all(word in message for word in words), message
    assert str(tmp_path) not in message


@pytest.mark.parametrize("flag", [*flags.FLAGS.forbidden, "--listen-port=1"])
def test_flags_that_lemonbus_sets(flag: str) -> None:
    with pytest.raises(LemonbusError) as raised:
        ARGUMENT_CHECKS["sdcpp_args"](f"--fa {flag} 1")
    assert raised.value.failure.param == "sdcpp_args"
    assert flag.partition("=")[0] in raised.value.failure.message


SWITCHES = st.sampled_from(flags.FLAGS.names(lambda flag: flag.target and flag.kind is None))
WORDS = (
    st.sampled_from(flags.FLAGS.names(lambda flag: flag.target)) | st.sampled_from(["1", "0.5"]) | st.text(max_size=4)
)


@accepted_share(0.1, words=st.lists(SWITCHES, min_size=1, max_size=3) | st.lists(WORDS, max_size=3))
def test_any_command_line_is_read_or_refused(words: list[str]) -> bool:
    try:
        return bool(flags.FLAGS.parse(words))
    except FlagError:
        return False


def test_our_program_knows_every_part_of_a_model() -> None:
    known = set(flags.FLAGS.names(lambda flag: flag.target))
    assert known > flags.PARTS > flags.TEXT_ENCODER_FLAGS
    assert set(flags.FLAGS.forbidden) - known == {"--help", "-h", "--serve-html-path"}


def test_the_environment() -> None:
    inherited = {"PATH": "/bin", "LEMONBUS_API_KEY": "k", "HF_TOKEN": "t", "PYTHONPATH": "p", flags.KEY: "old"}
    assert made().environment(inherited) == {
        "PATH": "/dev/null",
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        "GOMP_SPINCOUNT": "300",
    }


def test_complete_files(tmp_path: Path, program: str) -> None:
    files = {"a.safetensors": safetensors(), "b.gguf": gguf(100), "c.ckpt": b"PK\x03\x04 anything"}
    for name, data in files.items():
        (tmp_path / name).write_bytes(data)
        backend = made(program, file=str(tmp_path / name))
        assert backend.examine().size == len(data)
    both = made(program, file=str(tmp_path / "a.safetensors"), sdcpp_args=f"--vae {tmp_path / 'b.gguf'}")
    assert both.examine().size == len(files["a.safetensors"]) + 100


_HEADER = b'{"x":{"dtype":"U8","shape":[9],"data_offsets":[0,9]}}'


@pytest.mark.parametrize(
    ("name", "data", "reason"),
    [
        ("x.safetensors", b"", "not a safetensors file"),
        ("x.safetensors", b"<html>not found</html>", "not a safetensors file"),
        ("x.safetensors", safetensors()[:30], "truncated inside its header"),
        ("x.safetensors", safetensors(900)[:-50], "truncated: 50 bytes"),
        ("x.safetensors", struct.pack("<Q", 2) + b"[]", "not a safetensors file"),
        ("x.safetensors", struct.pack("<Q", len(_HEADER)) + _HEADER, "truncated: 9 bytes"),
        ("x.safetensors", struct.pack("<Q", 2**25) + bytes(99), "not a safetensors file"),
        ("x.safetensors", struct.pack("<Q", 7) + b'{"\xff":0}', "not a safetensors file"),
        ("x.gguf", b"<html>", "not a GGUF file"),
        ("x.safetensors", gguf(100)[:10], "truncated"),
        ("x.safetensors", None, "missing"),
    ],
)
@pytest.mark.parametrize("part", [False, True])
def test_invalid_model_files(
    tmp_path: Path, program: str, name: str, data: bytes | None, reason: str, part: bool
) -> None:
    if data is not None:
        (tmp_path / name).write_bytes(data)
    good = tmp_path / "good.safetensors"
    good.write_bytes(safetensors())
    broken = str(tmp_path / name)
    backend = made(program, file=str(good), sdcpp_args=f"--vae {broken}") if part else made(program, file=broken)
    with pytest.raises(LemonbusError) as raised:
        check_model(backend.spec, backend)
    failure = raised.value.failure
    assert (failure.code, reason in failure.message) == (Code.MODEL_UNUSABLE, True), failure
    assert str(tmp_path) not in failure.message


@pytest.mark.parametrize(
    ("line", "level", "text"),
    [
        (b"[INFO ] stable-diffusion.cpp:3401 - generating", "debug", "stable-diffusion.cpp:3401 - generating"),
        (b"[DEBUG] common.cpp:1  - prompt: a cat", "trace", "common.cpp:1  - prompt: a cat"),
        (b"[WARN ] x", "warning", "x"),
        (b"[ERROR] x", "error", "x"),
        (b"  |====>   | 1/2 - 12.47it/s\r  |=====| 2/2 - 11.64it/s", "debug", None),
        (b"ggml_vulkan: Found 1 device", "info", "ggml_vulkan: Found 1 device"),
    ],
)
def test_its_lines(line: bytes, level: str, text: str | None) -> None:
    found = made().parse(line)
    assert found[0] == level
    assert text is None or found[1] == text
