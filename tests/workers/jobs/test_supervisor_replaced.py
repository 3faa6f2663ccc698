"""A real job whose supervisor is killed: it goes on, and tells the next one its order, its progress and its result."""

from __future__ import annotations

import pytest

from protocol.messages.backend_installs import Installed, InstallProgress
from protocol.messages.calls import Progress
from protocol.messages.model_files import CheckpointSource, Pulled, StartPull
from protocol.messages.recovery import JobSnapshot
from protocol.wire import envelope
from tests.support.fakes.hub import Hub
from tests.support.fakes.release_server import ReleaseServer
from tests.support.waiting import stays, wait_for
from tests.workers.jobs.conftest import MODEL, REPOSITORY
from tests.workers.jobs.download_results import found
from tests.workers.jobs.impatient_pull import LONGEST_END_S
from tests.workers.jobs.install_orders import order
from tests.workers.jobs.job_runner import DEADLINE, JobRunner

SOURCE = CheckpointSource(f"{REPOSITORY}:Q4_0")


@pytest.fixture
def pulling(hub: Hub, runner: JobRunner) -> JobRunner:
    """A job that has reported a part of its download, and cannot go on before the hub does."""
    hub.hold_after = 2_200_000
    runner.start()
    runner.order("j1", SOURCE)
    wait_for(hub.holding.is_set, "the hub holds the transfer")
    while not 0 < runner.until("j1", Progress).bytes_downloaded < len(MODEL):
        pass
    return runner


def order_of(snapshot: JobSnapshot) -> object:
    return envelope.decode(snapshot.order)[0]


def test_a_pull_goes_on_and_its_progress_is_known_to_each_supervisor(hub: Hub, pulling: JobRunner) -> None:
    for _ in range(2):
        pulling.lose_supervisor()
        assert order_of(pulling.get_supervisor("j1")) == StartPull("m", [SOURCE], str(pulling.cache))
        known = pulling.until("j1", Progress)
        assert 0 < known.bytes_downloaded < len(MODEL)
    transfers = list(hub.transfers)
    hub.released.set()
    assert pulling.result("j1") == Pulled("m", 1)
    assert hub.transfers == transfers, "nothing is fetched twice"


def test_a_result_without_a_supervisor_is_kept_for_the_next(hub: Hub, pulling: JobRunner) -> None:
    pulling.lose_supervisor()
    hub.released.set()
    wait_for(lambda: found(pulling, SOURCE), "the file is complete")
    for _ in range(2):
        assert order_of(pulling.get_supervisor("j1")) == StartPull("m", [SOURCE], str(pulling.cache))
        assert pulling.until("j1", Pulled) == Pulled("m", 1)
        assert pulling.progress("j1")[-1].percent == 100
        pulling.lose_supervisor()
    pulling.get_supervisor("j1")
    assert pulling.result("j1") == Pulled("m", 1)


def test_a_result_that_is_not_taken_ends_the_job_only_while_there_is_a_supervisor(hub: Hub, runner: JobRunner) -> None:
    hub.hold_after = 2_200_000
    job = runner.start(module="tests.workers.jobs.impatient_pull")
    runner.order("j1", SOURCE)
    wait_for(hub.holding.is_set, "the hub holds the transfer")
    runner.lose_supervisor()
    hub.released.set()
    wait_for(lambda: found(runner, SOURCE), "the file is complete")
    stays(lambda: job.poll() is None, "it waits for a supervisor", 3 * LONGEST_END_S)
    runner.get_supervisor("j1")
    assert runner.until("j1", Pulled) == Pulled("m", 1)
    assert job.wait(DEADLINE) == 0


def test_an_installation_is_reported_to_the_next_supervisor(releases: ReleaseServer, runner: JobRunner) -> None:
    runner.start(module="workers.jobs.install")
    install = order(releases, runner.cache)
    runner.send("j1", install)
    assert runner.until("j1", Installed) == Installed(1)
    runner.lose_supervisor()
    assert order_of(runner.get_supervisor("j1")) == install
    assert runner.until("j1", InstallProgress).file_index == 1
    assert runner.until("j1", Installed) == Installed(1)
    runner.dismiss("j1")


@pytest.mark.parametrize("module", ["remove", "variants", "describe", "probe", "pull"])
def test_a_job_whose_order_was_lost_ends_when_the_next_supervisor_says_so(runner: JobRunner, module: str) -> None:
    runner.start(module=f"workers.jobs.{module}")
    runner.lose_supervisor()
    assert runner.get_supervisor("j1") == JobSnapshot()
    runner.dismiss("j1")
