"""All batches together: why one waits is told, and one whose files are damaged holds no other."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from protocol.batches import batch_waits
from protocol.batches.batch_states import ENDED, BatchState
from protocol.batches.batch_store import ERRORS, INPUT, OUTPUT, BatchOrder, BatchProgress, BatchStore, new_id
from protocol.batches.file_store import FileStore
from protocol.config.settings import Settings
from tests.support.waiting import wait_for
from workers.jobs.batch_run import runner as runner_module
from workers.jobs.batch_run.answers import LineAnswer
from workers.jobs.batch_run.input_lines import BatchLine
from workers.jobs.batch_run.line_client import LineClient
from workers.jobs.batch_run.runner import BatchRunner

NOW = int(time.time())
ROUTE = "/v1/embeddings"
WELL = LineAnswer(200, b"{}")
OWNERS = "", "other"


def refused(why: str) -> LineAnswer:
    return LineAnswer(503, json.dumps({"error": {"code": "batch_waits", "message": why}}).encode())


class FakeLineClient(LineClient):
    """Answers each line as a test says; those of another owner well."""

    def __init__(self, answer: Callable[[BatchLine], LineAnswer]) -> None:
        super().__init__("http://127.0.0.1:1", "")
        self.answer = answer

    def send(self, batch: str, owner: str, endpoint: str, line: BatchLine) -> LineAnswer:
        assert (batch[:6], owner in OWNERS, endpoint) == ("batch_", True, ROUTE)
        return self.answer(line) if owner == OWNERS[0] else WELL


class Batches:
    """A state directory, and a thread that works its batches off."""

    def __init__(self, folder: Path) -> None:
        self.runtime = folder
        self.settings = Settings(state_dir=str(folder))
        self.store, self.files = BatchStore(self.settings), FileStore(self.settings)
        self.runner: BatchRunner | None = None
        self.thread = threading.Thread()

    def make(self, *models: str, owner: str = OWNERS[0], at: int = NOW) -> str:
        """Return a new batch with a request for each of the models."""
        order = BatchOrder(new_id("batch"), owner, ROUTE, at, at + 3600, input_file_id="file-x")
        lines = [
            {"custom_id": str(number), "method": "POST", "url": ROUTE, "body": {"model": model}}
            for number, model in enumerate(models)
        ]
        self.store.create(order, [json.dumps(line).encode() + b"\n" for line in lines])
        return order.id

    def work(self, answer: Callable[[BatchLine], LineAnswer]) -> None:
        self.runner = BatchRunner(self.settings, FakeLineClient(answer), self.runtime)
        self.thread = threading.Thread(target=self.runner.run, daemon=True)
        self.thread.start()

    def progress(self, batch: str) -> BatchProgress:
        return self.store.get(batch, None).progress

    def ended(self, batch: str) -> BatchProgress:
        wait_for(lambda: self.progress(batch).state in ENDED, "the batch ended")
        return self.progress(batch)

    def waits(self) -> dict[str, str]:
        return batch_waits.read(self.runtime)


@pytest.fixture
def batches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Batches]:
    monkeypatch.setattr(runner_module, "_SCAN_S", 0.05)
    monkeypatch.setattr(runner_module, "_WRITE_S", 0.05)
    monkeypatch.setattr(runner_module, "_DISK_PAUSE_S", 0.1)
    made = Batches(tmp_path)
    yield made
    for batch in made.store.names():
        made.store.cancel(batch)
    made.thread.join(15)
    assert not made.thread.is_alive()


def test_why_batches_wait_is_told_until_they_run(batches: Batches) -> None:
    answers = {"busy": refused("Model busy: no slot is free"), "free": WELL}
    one, other, running = batches.make("busy"), batches.make("busy", "busy"), batches.make("free", "free")
    batches.work(lambda line: answers[line.model])
    assert batches.ended(running).completed == 2
    expected = {one: "Model busy: no slot is free", other: "Model busy: no slot is free"}
    wait_for(lambda: batches.waits() == expected, "both say why")
    answers["busy"] = LineAnswer(429, b'{"error":{"code":"rate_limit_exceeded","message":"10 a minute"}}', "", 0.1)
    wait_for(lambda: batches.waits() == {one: "10 a minute", other: "10 a minute"}, "the new reason is told")
    answers["busy"] = WELL
    assert [batches.ended(each).completed for each in (one, other)] == [1, 2]
    wait_for(lambda: not batches.waits(), "none waits")


def test_an_owner_whose_limit_is_reached_holds_no_other(batches: Batches) -> None:
    limited, other = batches.make("m"), batches.make("m", owner=OWNERS[1])
    reached = LineAnswer(429, b'{"error":{"code":"insufficient_quota","message":"9 tokens a day"}}', "", 60.0)
    batches.work(lambda line: reached)
    assert batches.ended(other).completed == 1
    wait_for(lambda: batches.waits() == {limited: "9 tokens a day"}, "only the other one waits")


def test_a_batch_of_which_a_line_runs_does_not_wait(batches: Batches, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner_module, "RUNS_S", 0.1)
    refusing, end = [True], threading.Event()

    def answer(line: BatchLine) -> LineAnswer:
        if refusing[0]:
            return refused("no slot is free")
        assert end.wait(15)
        return WELL

    batch = batches.make("m")
    batches.work(answer)
    wait_for(lambda: batches.waits() == {batch: "no slot is free"}, "it waits")
    refusing[0] = False
    wait_for(lambda: not batches.waits(), "it runs")
    end.set()
    assert batches.ended(batch).completed == 1


@pytest.mark.parametrize("name", [OUTPUT, ERRORS])
def test_a_damaged_batch_holds_no_other(batches: Batches, name: str) -> None:
    damaged = batches.make("m")
    batches.store.path(damaged, name).mkdir()
    sound = batches.make("m")
    batches.work(lambda line: WELL)
    assert batches.ended(sound).completed == 1
    wait_for(lambda: "the disk does not give" in batches.waits().get(damaged, ""), "it says why it waits")
    assert batches.thread.is_alive(), "it is tried again"
    batches.store.path(damaged, name).rmdir()
    assert batches.ended(damaged).completed == 1


def test_a_batch_that_ended_long_ago_and_cannot_be_tidied_holds_no_other(batches: Batches) -> None:
    old, sound = batches.make("m", at=NOW - 7 * 86_400), batches.make("m")
    batches.store.write_progress(old, BatchProgress(BatchState.COMPLETED, total=1, completed=1))
    batches.store.path(old, INPUT).unlink()
    batches.store.path(old, INPUT).mkdir()
    batches.work(lambda line: WELL)
    assert batches.ended(sound).completed == 1
    assert batches.progress(old).state is BatchState.COMPLETED
    batches.store.path(old, INPUT).rmdir()


def test_the_results_of_a_batch_whose_input_is_gone_are_kept(batches: Batches) -> None:
    lost, sound = batches.make("m"), batches.make("m")
    batches.store.write_progress(lost, BatchProgress(BatchState.IN_PROGRESS, total=1, completed=1))
    batches.store.path(lost, OUTPUT).write_bytes(b'{"custom_id":"0"}\n')
    batches.store.path(lost, INPUT).unlink()
    batches.work(lambda line: WELL)
    assert batches.ended(sound).completed == 1
    progress = batches.ended(lost)
    assert (progress.state, [each.code for each in progress.problems]) == (BatchState.FAILED, ["unreadable"])
    assert batches.files.data(progress.output_file_id).read_bytes() == b'{"custom_id":"0"}\n'
