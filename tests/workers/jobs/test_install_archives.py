"""What an archive may have in it to be installed: nothing of it comes to lie elsewhere."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

import pytest

from tests.support.fakes.release_server import ReleaseServer, llama_server, tar, zipped
from tests.workers.jobs.install_orders import find_installed, order, refused, run


@pytest.mark.parametrize(
    ("data", "expected"),
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
        (b"this is not an archive", "not an archive"),
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
def test_archives_that_are_refused(data: bytes, expected: str, releases: ReleaseServer, tmp_path: Path) -> None:
    releases.files["bad"] = data
    cache = tmp_path / "deep" / "cache"
    assert expected in refused(order(releases, cache, name="bad"), cache)
    assert not list(tmp_path.rglob("out"))
    assert find_installed(cache) == []


def test_a_cache_behind_a_link_is_not_a_link_of_the_archive(releases: ReleaseServer, tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    (tmp_path / "cache").symlink_to("disk")
    run(order(releases, tmp_path / "cache"))
    assert find_installed(tmp_path / "cache")[0].program.is_file()


def test_devices_and_hard_links_out(releases: ReleaseServer, tmp_path: Path) -> None:
    for kind, target in ((tarfile.FIFOTYPE, ""), (tarfile.CHRTYPE, ""), (tarfile.LNKTYPE, "../../lock")):
        out = io.BytesIO()
        with tarfile.open(fileobj=out, mode="w") as archive:
            info = tarfile.TarInfo("llama-server")
            info.type, info.linkname = kind, target
            archive.addfile(info)
        releases.files["bad"] = out.getvalue()
        assert "the archive was refused" in refused(order(releases, tmp_path, name="bad"), tmp_path)


def test_a_zip_with_a_windows_name(releases: ReleaseServer, tmp_path: Path) -> None:
    releases.files["good.zip"] = zipped(("build/bin/llama-server.exe", b"MZ"), ("build/bin/link", "llama-server.exe"))
    run(order(releases, tmp_path, name="good.zip"))
    assert find_installed(tmp_path)[0].record.program == "build/bin/llama-server.exe"
