"""The install job with a release from a server on loopback: complete, broken off, continued, refused."""

from __future__ import annotations

import os
import resource
from pathlib import Path

from msgspec import structs

from protocol.failures import Code
from protocol.messages.backend_installs import Archive, InstallFailed, StartUninstall
from protocol.models import installations
from tests.support.fakes.release_server import ReleaseServer, llama_server, sha256
from tests.workers.jobs.install_orders import (
    NAME,
    find_installed,
    leftovers,
    order,
    partial_downloads,
    refused,
    run,
    write_partial_download,
)
from workers.jobs.install import run_order
from workers.jobs.progress import DownloadProgress, ProgressSnapshot


def test_an_archive_is_installed_whole(releases: ReleaseServer, tmp_path: Path) -> None:
    progress = DownloadProgress()
    run(order(releases, tmp_path), progress)
    (installation,) = find_installed(tmp_path)
    assert installation.folder.name == "b1-d1"
    assert (installation.record.version, installation.record.backend) == ("b1", "vulkan")
    assert os.access(installation.program, os.X_OK)
    assert (installation.program.parent / "libllama.so").read_bytes()
    size = len(releases.files[NAME])
    assert progress.reading == ProgressSnapshot(NAME, 1, 1, size, size)
    assert partial_downloads(tmp_path) == []
    run(order(releases, tmp_path))
    assert len(releases.requests) == 1


def test_an_update_replaces_the_older_version(releases: ReleaseServer, tmp_path: Path) -> None:
    run(order(releases, tmp_path))
    releases.files["new.tgz"] = llama_server("b2")
    run(structs.replace(order(releases, tmp_path, "b2", "new.tgz"), retire=False))
    assert [each.record.version for each in find_installed(tmp_path)] == ["b2", "b1"]
    run(order(releases, tmp_path, "b2", "new.tgz"))
    assert [each.record.version for each in find_installed(tmp_path)] == ["b2"]
    run(StartUninstall("llamacpp", "vulkan", str(tmp_path)))
    assert leftovers(tmp_path) == []
    run(StartUninstall("llamacpp", "vulkan", str(tmp_path)))


def test_a_transfer_that_breaks_off_goes_on(releases: ReleaseServer, tmp_path: Path) -> None:
    releases.break_after = 100_000
    run(order(releases, tmp_path))
    (_, first), (_, second) = releases.requests
    assert (first, second) == (0, releases.requests[1][1])
    assert second >= 100_000


def test_a_server_that_knows_no_ranges_sends_it_all_again(releases: ReleaseServer, tmp_path: Path) -> None:
    releases.break_after, releases.ranges = 100_000, False
    run(order(releases, tmp_path))
    assert [start for _, start in releases.requests] == [0, 0]
    assert find_installed(tmp_path)


def test_redirects_and_busy_servers(releases: ReleaseServer, tmp_path: Path) -> None:
    releases.statuses = [503, 429]
    archive = Archive(f"{releases.url}/elsewhere/{NAME}", sha256(releases.files[NAME]))
    run(structs.replace(order(releases, tmp_path), archive=archive))
    assert find_installed(tmp_path)


def test_a_piece_that_is_the_whole_file_is_not_sent_again(releases: ReleaseServer, tmp_path: Path) -> None:
    data = releases.files[NAME]
    write_partial_download(tmp_path, sha256(data), data)
    run(order(releases, tmp_path))
    assert releases.requests == [(NAME, len(data))]


def test_a_piece_that_is_too_long_is_thrown_away(releases: ReleaseServer, tmp_path: Path) -> None:
    data = releases.files[NAME]
    write_partial_download(tmp_path, sha256(data), data + b"more")
    run(order(releases, tmp_path))
    assert find_installed(tmp_path)


def test_another_sha256_is_refused(releases: ReleaseServer, tmp_path: Path) -> None:
    reason = refused(order(releases, tmp_path, digest="0" * 64), tmp_path)
    assert "sha256 differs" in reason
    assert partial_downloads(tmp_path) == []


def test_a_file_that_is_not_there(releases: ReleaseServer, tmp_path: Path) -> None:
    assert "404" in refused(order(releases, tmp_path, name="gone.tar.gz"), tmp_path)


def test_the_release_server_is_unreachable(releases: ReleaseServer, tmp_path: Path) -> None:
    wanted = structs.replace(order(releases, tmp_path), archive=Archive("http://127.0.0.1:9/x.tar.gz", "0" * 64))
    assert "127.0.0.1 cannot be reached" in refused(wanted, tmp_path)


def test_a_full_disk_is_reported_before_the_download(releases: ReleaseServer, tmp_path: Path) -> None:
    releases.claims = 10**16
    assert "not enough disk space" in refused(order(releases, tmp_path), tmp_path)


def test_a_disk_that_fills_up_meanwhile(releases: ReleaseServer, tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, hard))
    try:
        assert "could not be written: File too large" in refused(order(releases, tmp_path), tmp_path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert [piece.stat().st_size for piece in partial_downloads(tmp_path)] == [200_000]
    run(order(releases, tmp_path))
    assert releases.requests[-1] == (NAME, 200_000)
    assert partial_downloads(tmp_path) == []


def test_obsolete_partial_downloads_are_removed(releases: ReleaseServer, tmp_path: Path) -> None:
    write_partial_download(tmp_path, "1" * 64, b"old")
    run(order(releases, tmp_path))
    assert partial_downloads(tmp_path) == []
    (installations.backend_folder(str(tmp_path), "llamacpp", "vulkan") / f".download-{'2' * 64}").write_bytes(b"half")
    run(StartUninstall("llamacpp", "vulkan", str(tmp_path)))
    assert partial_downloads(tmp_path) == []


def test_what_a_killed_job_left_is_swept_away(releases: ReleaseServer, tmp_path: Path) -> None:
    home = installations.backend_folder(str(tmp_path), "llamacpp", "vulkan")
    for leftover in (".draft", ".gone-1-b0-d0", "b1-d1"):
        (home / leftover).mkdir(parents=True)
        (home / leftover / "half").write_text("x")
    run(order(releases, tmp_path))
    assert leftovers(tmp_path) == ["b1-d1"]
    assert find_installed(tmp_path)


def test_an_offline_server_installs_nothing(releases: ReleaseServer, tmp_path: Path) -> None:
    result = run_order(order(releases, tmp_path), DownloadProgress(), offline=True)
    assert isinstance(result, InstallFailed)
    assert result.failure.code is Code.OFFLINE
    assert releases.requests == []
