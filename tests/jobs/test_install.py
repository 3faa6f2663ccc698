"""What the install job does, against a release server on loopback, real pip and a folder of wheels."""

from __future__ import annotations

import io
import os
import resource
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec import structs

from protocol import installed
from protocol.backends import Archive, Installed, InstallFailed, Installing, PinnedWheel, Uninstalling, WheelFile
from protocol.failures import Code
from protocol.installed import Installation
from tests.house.releases import Releases, llama_server, sha256, tar, zipped
from tests.house.wheelhouse import make_wheel
from workers.jobs.gauge import Gauge, Reading
from workers.jobs.install import work

NAME = "llama-b1-bin-ubuntu-vulkan-x64.tar.gz"


@pytest.fixture
def releases() -> Iterator[Releases]:
    with Releases({NAME: llama_server(padding=300_000)}) as releases:
        yield releases


def order(releases: Releases, cache: Path, version: str = "b1", name: str = NAME, digest: str = "") -> Installing:
    archive = Archive(f"{releases.url}/{name}", digest or sha256(releases.files.get(name, b"")))
    return Installing("llamacpp", "vulkan", version, "d1", str(cache), "llama-server", archive=archive, retire=True)


def there(cache: Path) -> list[Installation]:
    return installed.find(str(cache), "llamacpp", "vulkan")


def run(order: Installing | Uninstalling, gauge: Gauge | None = None) -> Installed:
    result = work(order, gauge or Gauge(), offline=False)
    assert isinstance(result, Installed), result
    return result


def refused(order: Installing, cache: Path) -> str:
    """Run an order that must fail and leave nothing; return what the caller is told."""
    result = work(order, Gauge(), offline=False)
    assert isinstance(result, InstallFailed)
    assert str(cache) not in result.failure.message
    assert leftovers(cache) == []
    return result.failure.message


def leftovers(cache: Path) -> list[str]:
    home = installed.home(str(cache), "llamacpp", "vulkan")
    return [path.name for path in home.iterdir() if path.name != ".lock" and not path.name.startswith(".download-")]


def pieces(cache: Path) -> list[Path]:
    """What came of downloads that are not whole."""
    return list(installed.home(str(cache), "llamacpp", "vulkan").glob(".download-*"))


def put_piece(cache: Path, digest: str, data: bytes) -> None:
    home = installed.home(str(cache), "llamacpp", "vulkan")
    home.mkdir(parents=True)
    (home / f".download-{digest}").write_bytes(data)


def test_an_archive_is_installed_whole(releases: Releases, tmp_path: Path) -> None:
    gauge = Gauge()
    run(order(releases, tmp_path), gauge)
    (installation,) = there(tmp_path)
    assert installation.folder.name == "b1-d1"
    assert (installation.record.version, installation.record.backend) == ("b1", "vulkan")
    assert os.access(installation.program, os.X_OK)
    assert (installation.program.parent / "libllama.so").read_bytes()
    size = len(releases.files[NAME])
    assert gauge.reading == Reading(NAME, 1, 1, size, size)
    assert pieces(tmp_path) == []
    run(order(releases, tmp_path))
    assert len(releases.requests) == 1


def test_an_update_takes_the_place_of_the_older_version(releases: Releases, tmp_path: Path) -> None:
    run(order(releases, tmp_path))
    releases.files["new.tgz"] = llama_server("b2")
    run(structs.replace(order(releases, tmp_path, "b2", "new.tgz"), retire=False))
    assert [each.record.version for each in there(tmp_path)] == ["b2", "b1"]
    run(order(releases, tmp_path, "b2", "new.tgz"))
    assert [each.record.version for each in there(tmp_path)] == ["b2"]
    run(Uninstalling("llamacpp", "vulkan", str(tmp_path)))
    assert leftovers(tmp_path) == []
    run(Uninstalling("llamacpp", "vulkan", str(tmp_path)))


def test_a_transfer_that_breaks_off_goes_on(releases: Releases, tmp_path: Path) -> None:
    releases.break_after = 100_000
    run(order(releases, tmp_path))
    (_, first), (_, second) = releases.requests
    assert (first, second) == (0, releases.requests[1][1])
    assert second >= 100_000


def test_a_server_that_knows_no_ranges_sends_it_all_again(releases: Releases, tmp_path: Path) -> None:
    releases.break_after, releases.ranges = 100_000, False
    run(order(releases, tmp_path))
    assert [start for _, start in releases.requests] == [0, 0]
    assert there(tmp_path)


def test_redirects_and_busy_servers(releases: Releases, tmp_path: Path) -> None:
    releases.statuses = [503, 429]
    archive = Archive(f"{releases.url}/elsewhere/{NAME}", sha256(releases.files[NAME]))
    run(structs.replace(order(releases, tmp_path), archive=archive))
    assert there(tmp_path)


def test_a_piece_that_is_the_whole_file_is_not_sent_again(releases: Releases, tmp_path: Path) -> None:
    data = releases.files[NAME]
    put_piece(tmp_path, sha256(data), data)
    run(order(releases, tmp_path))
    assert releases.requests == [(NAME, len(data))]


def test_a_piece_that_is_too_long_is_thrown_away(releases: Releases, tmp_path: Path) -> None:
    data = releases.files[NAME]
    put_piece(tmp_path, sha256(data), data + b"more")
    run(order(releases, tmp_path))
    assert there(tmp_path)


def test_another_sha256_is_refused(releases: Releases, tmp_path: Path) -> None:
    said = refused(order(releases, tmp_path, digest="0" * 64), tmp_path)
    assert "sha256 differs" in said
    assert pieces(tmp_path) == []


def test_a_file_that_is_not_there(releases: Releases, tmp_path: Path) -> None:
    assert "404" in refused(order(releases, tmp_path, name="gone.tar.gz"), tmp_path)


def test_nobody_there(releases: Releases, tmp_path: Path) -> None:
    wanted = structs.replace(order(releases, tmp_path), archive=Archive("http://127.0.0.1:9/x.tar.gz", "0" * 64))
    assert "127.0.0.1 cannot be reached" in refused(wanted, tmp_path)


def test_a_full_disk_is_told_before_anything_comes(releases: Releases, tmp_path: Path) -> None:
    releases.claims = 10**16
    assert "not enough disk space" in refused(order(releases, tmp_path), tmp_path)


def test_a_disk_that_fills_up_meanwhile(releases: Releases, tmp_path: Path) -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, hard))
    try:
        assert "could not be written: File too large" in refused(order(releases, tmp_path), tmp_path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
    assert [piece.stat().st_size for piece in pieces(tmp_path)] == [200_000]
    run(order(releases, tmp_path))
    assert releases.requests[-1] == (NAME, 200_000)
    assert pieces(tmp_path) == []


def test_pieces_of_what_nobody_wants_any_more_go(releases: Releases, tmp_path: Path) -> None:
    put_piece(tmp_path, "1" * 64, b"old")
    run(order(releases, tmp_path))
    assert pieces(tmp_path) == []
    (installed.home(str(tmp_path), "llamacpp", "vulkan") / f".download-{'2' * 64}").write_bytes(b"half")
    run(Uninstalling("llamacpp", "vulkan", str(tmp_path)))
    assert pieces(tmp_path) == []


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (tar(("../out", b"x")), "outside"),
        (tar(("a/../../out", b"x")), "outside"),
        (tar(("/out", b"x")), "outside"),
        (tar(("a\\..\\..\\out", b"x")), "outside"),
        (tar(("link", "../../.."), ("link/out", b"x")), "link out"),
        (tar(("link", "/etc"), ("llama-server", b"x")), "link out"),
        (tar(("a/link", "."), ("a/link/out", b"x")), "through a link"),
        (tar(("a/b/c/one", "../../../top"), ("top/x", b"x"), ("a/b/c/two", "one/../../y")), "link out"),
        (zipped(("../out", b"x")), "outside"),
        (zipped(("link", "../out"), ("llama-server", b"x")), "link out"),
        (zipped(("llama-b1/else", b"x")), "no program llama-server"),
        (b"this is no archive", "no archive"),
        (llama_server(padding=300_000)[:200_000], "damaged"),
    ],
    ids=[
        "up",
        "up from within",
        "absolute",
        "backslashes",
        "through a link out",
        "an absolute link",
        "through a link",
        "two links",
        "zip up",
        "a zip's link",
        "no program",
        "no archive",
        "cut off",
    ],
)
def test_archives_that_are_refused(data: bytes, said: str, releases: Releases, tmp_path: Path) -> None:
    releases.files["bad"] = data
    cache = tmp_path / "deep" / "cache"
    assert said in refused(order(releases, cache, name="bad"), cache)
    assert not list(tmp_path.rglob("out"))
    assert there(cache) == []


def test_a_cache_behind_a_link_is_no_link_of_the_archive(releases: Releases, tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    (tmp_path / "cache").symlink_to("disk")
    run(order(releases, tmp_path / "cache"))
    assert there(tmp_path / "cache")[0].program.is_file()


def test_devices_and_hard_links_out(releases: Releases, tmp_path: Path) -> None:
    for kind, target in ((tarfile.FIFOTYPE, ""), (tarfile.CHRTYPE, ""), (tarfile.LNKTYPE, "../../lock")):
        out = io.BytesIO()
        with tarfile.open(fileobj=out, mode="w") as archive:
            info = tarfile.TarInfo("llama-server")
            info.type, info.linkname = kind, target
            archive.addfile(info)
        releases.files["bad"] = out.getvalue()
        assert "the archive was refused" in refused(order(releases, tmp_path, name="bad"), tmp_path)


def test_a_zip_with_a_windows_name(releases: Releases, tmp_path: Path) -> None:
    releases.files["good.zip"] = zipped(("build/bin/llama-server.exe", b"MZ"), ("build/bin/link", "llama-server.exe"))
    run(order(releases, tmp_path, name="good.zip"))
    assert there(tmp_path)[0].record.program == "build/bin/llama-server.exe"


def test_what_a_killed_job_left_is_swept_away(releases: Releases, tmp_path: Path) -> None:
    home = installed.home(str(tmp_path), "llamacpp", "vulkan")
    for leftover in (".draft", ".gone-1-b0-d0", "b1-d1"):
        (home / leftover).mkdir(parents=True)
        (home / leftover / "half").write_text("x")
    run(order(releases, tmp_path))
    assert leftovers(tmp_path) == ["b1-d1"]
    assert there(tmp_path)


def test_an_offline_server_installs_nothing(releases: Releases, tmp_path: Path) -> None:
    result = work(order(releases, tmp_path), Gauge(), offline=True)
    assert isinstance(result, InstallFailed)
    assert result.failure.code is Code.OFFLINE
    assert releases.requests == []


@pytest.fixture
def wheels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name, value in {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(tmp_path / "wheels")}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_EXTRA_INDEX_URL", "")
    return tmp_path / "wheels"


def pinned(wheel: Path, digest: str = "") -> PinnedWheel:
    data = wheel.read_bytes()
    name, version, *_ = wheel.name.split("-")
    file = WheelFile(digest or sha256(data), len(data))
    other = WheelFile("1" * 64)
    return PinnedWheel(f"{name}=={version}", {wheel.name: file, wheel.name.replace("any", "other"): other})


def wheel_order(cache: Path, *wheels: PinnedWheel) -> Installing:
    return Installing("llamacpp", "vulkan", "1.0", "d1", str(cache), wheels=list(wheels))


def test_wheels_are_installed_into_a_folder_of_their_own(wheels: Path, tmp_path: Path) -> None:
    first = make_wheel(wheels, "tiny-engine", "1.0", {"tiny_engine/__init__.py": b"VALUE = 7\n"})
    second = make_wheel(wheels, "tiny-helper", "2.0", {"tiny_helper.py": b"import tiny_engine\n"})
    gauge = Gauge()
    run(wheel_order(tmp_path / "cache", pinned(first), pinned(second)), gauge)
    assert (gauge.reading.file_index, gauge.reading.total_files) == (2, 2)
    (installation,) = there(tmp_path / "cache")
    assert sorted(path.name for path in installation.folder.iterdir()) == [installed.RECORD, installed.SITE]
    said = subprocess.run(
        [sys.executable, "-c", "import tiny_engine, tiny_helper; print(tiny_engine.VALUE)"],
        env={"PYTHONPATH": str(installation.packages)},
        capture_output=True,
        timeout=30,
        check=True,
    )
    assert said.stdout == b"7\n"


def test_a_wheel_that_is_another_one_is_refused(wheels: Path, tmp_path: Path) -> None:
    wheel = make_wheel(wheels, "tiny-engine", "1.0", {"tiny_engine.py": b"VALUE = 7\n"})
    assert "sha256 differs" in refused(wheel_order(tmp_path, pinned(wheel, "0" * 64)), tmp_path)


def test_a_wheel_that_is_not_there_is_named(wheels: Path, tmp_path: Path) -> None:
    wheels.mkdir()
    wanted = wheel_order(tmp_path, PinnedWheel("nowhere==1.0", {"x.whl": WheelFile("0" * 64)}))
    assert "the package index has no nowhere==1.0" in refused(wanted, tmp_path)
