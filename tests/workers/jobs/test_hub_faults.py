"""Downloads from a hub that is slow, broken, busy, elsewhere, wrong or hostile, and onto a disk that is full."""

from __future__ import annotations

import gzip
import os
import resource
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from protocol.failures import Code
from protocol.messages.calls import Progress
from protocol.messages.model_files import CheckpointSource, Pulled, PullFailed
from tests.support.fakes.hub import Hub, gguf
from tests.support.waiting import wait_for
from tests.workers.jobs.conftest import MODEL, PROJECTOR, REPOSITORY
from tests.workers.jobs.download_results import found, message, partial
from tests.workers.jobs.in_process_downloader import InProcessDownloader
from tests.workers.jobs.job_runner import JobRunner

Q4 = CheckpointSource(f"{REPOSITORY}:Q4_0")
ONNX = {
    "README.md": b"# hello",
    "genai_config.json": b"{}",
    "model.onnx": b"onnx" * 100,
    "tokens/tokenizer.json": b"{}\n",
}


def bytes_of(runner: JobRunner | InProcessDownloader, source: CheckpointSource) -> bytes:
    there = found(runner, source)
    assert there is not None
    return Path(there.path).read_bytes()


def test_progress_is_reported_at_most_ten_times_a_second(hub: Hub, runner: JobRunner) -> None:
    hub.rate = 2_000_000
    assert runner.pull(Q4) == Pulled("m", 1)
    reported = [progress.bytes_downloaded for progress in runner.progress()]
    assert reported == sorted(set(reported))
    assert 2 <= len(reported) <= 10 * (len(MODEL) / hub.rate + 2)


def test_a_transfer_that_breaks_off_again_and_again_ends_whole(hub: Hub, downloader: InProcessDownloader) -> None:
    hub.break_after = 700_000
    hub.repositories["shop/two"] = {
        "two-Q4_0-00001-of-00002.gguf": gguf(1_500_000),
        "two-Q4_0-00002-of-00002.gguf": gguf(900_000, 3),
    }
    source = CheckpointSource("shop/two:q4_0")
    assert downloader.pull(source) == Pulled("m", 2)
    assert len(hub.transfers) == 4
    assert downloader.progress.reading.file_index == 2


def test_a_hub_that_knows_no_ranges_is_read_from_the_beginning(hub: Hub, downloader: InProcessDownloader) -> None:
    hub.break_after, hub.no_ranges = 1_500_000, True
    if isinstance(downloader.pull(Q4), PullFailed):  # old versions of the library do not notice
        assert not partial(downloader)
        assert downloader.pull(Q4, name="j2") == Pulled("m", 1)
    assert bytes_of(downloader, Q4) == MODEL


def test_files_come_from_another_host_that_never_sees_the_token(
    hub: Hub, downloader: InProcessDownloader, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub.token, hub.elsewhere, hub.break_after = "hf_secret", True, 1_000_000
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    assert downloader.pull(Q4) == Pulled("m", 1)
    assert bytes_of(downloader, Q4) == MODEL
    assert [start > 0 for _, start in hub.transfers] == [False, True]
    assert set(hub.tokens_elsewhere) == {""}


def test_a_gated_repository_lists_its_files_and_gives_none(
    hub: Hub, downloader: InProcessDownloader, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub.gated[REPOSITORY] = "hf_secret"
    assert f"{REPOSITORY} is gated" in message(downloader.pull(Q4), downloader)
    monkeypatch.setenv("HF_TOKEN", "hf_wrong")
    expected = message(downloader.pull(Q4), downloader)
    assert "HF_TOKEN" in expected
    assert "hf_wrong" not in expected


@pytest.mark.parametrize(("where", "status"), [("busy", 429), ("busy_files", 429), ("busy_files", 503)])
def test_a_busy_hub_is_asked_again_after_as_long_as_it_wants(
    hub: Hub, downloader: InProcessDownloader, where: str, status: int
) -> None:
    hub.retry_after, hub.busy_status = "1", status
    setattr(hub, where, 1)
    assert downloader.pull(Q4) == Pulled("m", 1)
    assert bytes_of(downloader, Q4) == MODEL


def test_a_download_ends_if_the_hub_asks_for_a_long_pause(hub: Hub, downloader: InProcessDownloader) -> None:
    hub.busy, hub.retry_after = 100, "3600"
    result = downloader.pull(Q4)
    assert "429" in message(result, downloader)
    assert "3600 s" in message(result, downloader)
    assert isinstance(result, PullFailed)
    assert result.failure.retry_after == 3600
    assert hub.requests <= 2


@pytest.mark.parametrize(
    ("more", "expected"), [(1000, "ends before the 3001000 bytes"), (-1000, "larger than the 2999000")]
)
def test_a_file_of_another_size_than_listed_is_deleted(
    hub: Hub, downloader: InProcessDownloader, more: int, expected: str
) -> None:
    hub.wrong_size = more
    assert expected in message(downloader.pull(Q4), downloader)
    assert not partial(downloader)
    assert found(downloader, Q4) is None
    hub.wrong_size = 0
    assert downloader.pull(Q4, name="j2") == Pulled("m", 1)


def test_small_files_are_checked_by_gits_digest(hub: Hub, downloader: InProcessDownloader) -> None:
    hub.repositories["shop/onnx"] = ONNX
    hub.plain = set(ONNX)
    hub.wrong_sha = True
    assert "model.onnx: it arrived damaged" in message(downloader.pull(CheckpointSource("shop/onnx")), downloader)
    assert found(downloader, CheckpointSource("shop/onnx")) is None
    hub.wrong_sha = False
    assert downloader.pull(CheckpointSource("shop/onnx"), name="j2") == Pulled("m", 3)


def test_a_repository_of_onnx_genai_is_one_model(hub: Hub, downloader: InProcessDownloader) -> None:
    hub.repositories["shop/onnx"] = ONNX
    source = CheckpointSource("shop/onnx")
    assert downloader.pull(source) == Pulled("m", 3)
    there = found(downloader, source)
    assert there is not None
    folder = Path(there.path) if Path(there.path).is_dir() else Path(there.path).parent
    assert (folder / "tokens" / "tokenizer.json").read_bytes() == b"{}\n"
    assert there.size == sum(len(data) for name, data in ONNX.items() if name != "README.md")


def test_a_star_means_every_gguf(hub: Hub, downloader: InProcessDownloader) -> None:
    source = CheckpointSource(f"{REPOSITORY}:*")
    assert downloader.pull(source) == Pulled("m", 3)
    there = found(downloader, source)
    assert there is not None
    assert there.path.endswith("tiny-Q8_0.gguf")
    assert there.size == len(MODEL) + len(PROJECTOR) + 64


def test_a_whole_repository_of_which_one_file_is_there_is_completed(hub: Hub, downloader: InProcessDownloader) -> None:
    assert downloader.pull(Q4) == Pulled("m", 1)
    there = found(downloader, CheckpointSource(f"{REPOSITORY}:*"))
    assert there is not None
    assert downloader.pull(CheckpointSource(f"{REPOSITORY}:*"), present=[there.path]) == Pulled("m", 3)


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"", "bad-Q4_0.gguf is empty at the hub"),
        (b"<html>not found</html>", "not a GGUF file"),
        (gguf(64)[:20], "truncated"),
    ],
)
def test_an_incomplete_gguf_file_of_the_hub_is_refused(
    hub: Hub, downloader: InProcessDownloader, data: bytes, expected: str
) -> None:
    hub.repositories["shop/bad"] = {"bad-Q4_0.gguf": data}
    source = CheckpointSource("shop/bad")
    assert expected in message(downloader.pull(source), downloader)
    assert found(downloader, source) is None
    assert not partial(downloader)


def test_a_hub_cannot_name_files_elsewhere(hub: Hub, downloader: InProcessDownloader) -> None:
    hub.repositories["shop/evil"] = {"../../evil-Q4_0.gguf": gguf(64), "/srv/evil-Q8_0.gguf": gguf(64)}
    assert "shop/evil has no GGUF" in message(downloader.pull(CheckpointSource("shop/evil")), downloader)
    assert hub.transfers == []


def test_an_answer_that_is_not_a_listing_is_reported(hub: Hub, downloader: InProcessDownloader) -> None:
    hub.garbage = b"<html>"
    assert "the hub's answer could not be read" in message(downloader.pull(Q4), downloader)


def test_a_listing_that_takes_all_memory_is_refused(hub: Hub, runner: JobRunner) -> None:
    hub.garbage = gzip.compress(b"[" * (550 << 20), compresslevel=1)
    result = runner.pull(Q4)
    assert isinstance(result, PullFailed)
    assert "the hub's answer takes more than 512 MiB" in result.failure.message


def test_a_part_that_was_damaged_since_is_not_the_end(hub: Hub, runner: JobRunner) -> None:
    hub.hold_after = 2_000_000
    job = runner.start()
    runner.order("j1", Q4)
    while runner.until("j1", Progress).bytes_downloaded < 1_000_000:
        pass
    job.kill()
    job.wait(5)
    hub.hold_after = 0
    hub.released.set()
    (left,) = partial(runner)
    with left.open("r+b") as file:
        file.seek(500_000)
        file.write(bytes(1000))
    assert runner.pull(Q4, name="j2") == Pulled("m", 1)
    assert bytes_of(runner, Q4) == MODEL
    assert [start > 0 for _, start in hub.transfers] == [False, True, False]


def test_a_damaged_blob_in_the_cache_is_fetched_again(hub: Hub, downloader: InProcessDownloader) -> None:
    assert downloader.pull(Q4) == Pulled("m", 1)
    there = found(downloader, Q4)
    assert there is not None
    blob = Path(there.path).resolve()
    os.truncate(blob, 1_000_000)
    assert downloader.pull(Q4, name="j2") == Pulled("m", 1)
    assert bytes_of(downloader, Q4) == MODEL


# ── other programs ─────────────────────────────────────────────────────────────────────────────────────────────


def with_the_library(code: str, environment: dict[str, str]) -> str:
    done = subprocess.run(
        [sys.executable, "-c", f"import huggingface_hub as h; print({code})"],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=30,
        check=True,
    )
    return done.stdout.strip()


def test_other_programs_find_what_was_pulled(downloader: InProcessDownloader, environment: dict[str, str]) -> None:
    assert downloader.pull(Q4) == Pulled("m", 1)
    call = f"h.hf_hub_download({REPOSITORY!r}, 'tiny-Q4_0.gguf', local_files_only=True)"
    assert Path(with_the_library(call, environment)).read_bytes() == MODEL


def test_what_other_programs_downloaded_is_found(
    hub: Hub, downloader: InProcessDownloader, environment: dict[str, str]
) -> None:
    with_the_library(f"h.hf_hub_download({REPOSITORY!r}, 'tiny-Q4_0.gguf')", environment)
    assert bytes_of(downloader, Q4) == MODEL
    before = len(hub.transfers)
    assert downloader.pull(Q4) == Pulled("m", 1)
    assert len(hub.transfers) == before


# ── a full disk ────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_disk_that_is_too_small_is_known_before_anything_is_fetched(
    hub: Hub, downloader: InProcessDownloader, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub.wrong_size = shutil.disk_usage(downloader.cache.parent).total
    result = downloader.pull(Q4)
    assert "not enough disk space" in message(result, downloader)
    assert isinstance(result, PullFailed)
    assert result.failure.code is Code.INSUFFICIENT_STORAGE
    assert hub.transfers == []


def test_a_write_that_fails_keeps_what_came(hub: Hub, runner: JobRunner) -> None:
    job = runner.start()
    resource.prlimit(job.pid, resource.RLIMIT_FSIZE, (1_000_000, 1_000_000))
    runner.order("j1", Q4)
    assert "could not be written: File too large" in message(runner.result("j1"), runner)
    assert [path.stat().st_size for path in partial(runner)] == [1_000_000]
    assert runner.pull(Q4, name="j2") == Pulled("m", 1)
    assert hub.transfers[-1] == ("tiny-Q4_0.gguf", 1_000_000)
    assert bytes_of(runner, Q4) == MODEL


def test_a_disk_that_fills_up_meanwhile(hub: Hub, environment: dict[str, str], tmp_path: Path) -> None:
    small = tmp_path / "small"
    small.mkdir()
    within = ["unshare", "-Urm", "sh", "-c", f'mount -t tmpfs -o size=72m none {small} && exec "$@"', "sh"]
    if subprocess.run([*within, "true"], capture_output=True, timeout=10, check=False).returncode:
        pytest.skip("a tmpfs cannot be mounted on this machine")
    hub.hold_after = 1_000_000
    with JobRunner(tmp_path / "cache", {**environment, "HF_HOME": str(small / "hf")}) as runner:
        job = runner.start(within=within)
        runner.order("j1", Q4)
        while runner.until("j1", Progress).bytes_downloaded < 900_000:  # what it still writes is less than it is left
            pass
        inside = Path(f"/proc/{job.pid}/root{small}")
        free = shutil.disk_usage(inside).free
        with (inside / "filler").open("wb") as filler:
            os.posix_fallocate(filler.fileno(), 0, free - 300_000)
        hub.released.set()
        result = runner.result("j1")
    assert "could not be written: No space left on device" in message(result, runner)
    assert isinstance(result, PullFailed)
    assert result.failure.code is Code.INSUFFICIENT_STORAGE
    wait_for(lambda: job.poll() is not None, "the job ended")
