"""What is shown of models, requests, downloads and memory: dates that stand still, and nothing that says nothing."""

from __future__ import annotations

import msgspec
import pytest
from msgspec import structs

from protocol.failures import Code, Failure
from protocol.ids import RequestKey
from protocol.messages.calls import Progress
from protocol.messages.engines import EngineReady, LoadStage
from protocol.messages.health import FailedModel, LoadInProgress
from protocol.messages.model_files import DownloadReport
from protocol.messages.model_overview import ModelDeath
from protocol.messages.node_reports import NodeReport, NodeState
from protocol.messages.overview import NodeOverview, PlaceMemory
from protocol.messages.recovery import RequestSnapshot
from protocol.models.memory import HOST, Capacity
from protocol.models.nodes import NodeFacts
from supervisor.metrics.recent_figures import ModelSpeed
from supervisor.overview.dates import STEP_S, Dates
from supervisor.overview.report import (
    MAX_WAITING_KEYS,
    ModelSources,
    download_of,
    memory_of,
    model_overview,
    nodes_of,
    request_overview,
    used_memory,
)
from supervisor.overview.running_tokens import TokensSoFar
from supervisor.persistence.server_record import Death, Deaths
from supervisor.scheduler.model_states import ModelState
from supervisor.scheduler.view_values import ModelView, RequestView, WaitingShare
from tests.supervisor.scheduler.effect_player import spec

WALL = 1_936_958_400.0
NOW = 500.0
FACTS = EngineReady(
    slots=4, context=4096, engine_pid=12, backend_url="http://127.0.0.1:1/", seconds=1.23456, command=["x"]
)
READY = ModelView(
    "m",
    "llm",
    ModelState.READY,
    spec("m"),
    worker="w1",
    facts=FACTS,
    slots=4,
    running=2,
    queued=1,
    memory=99,
    need={HOST: 77},
    ready_at=300.0,
    last_use=490.0,
    expires_at=None,
)


@pytest.fixture
def dates() -> Dates:
    made = Dates()
    made.read(WALL, NOW)
    return made


def test_dates_stand_still_until_the_clock_is_set(dates: Dates) -> None:
    before = dates.of(123.4567)
    assert before == round(WALL - NOW + 123.4567, 3)
    dates.read(WALL + 60.0 + STEP_S / 2, NOW + 60.0)
    assert dates.of(123.4567) == before
    dates.read(WALL + 3600.0, NOW + 60.0)
    assert dates.of(123.4567) == round(before + 3540.0, 3)


def test_the_start_of_the_server_does_not_waver_between_two_seconds(dates: Dates) -> None:
    moments = [NOW - 100.5 + jitter for jitter in (1e-6, -1e-6, 0.01, -0.01)]
    assert len({dates.server_started(moment) for moment in moments}) == 1
    dates.read(WALL + 3600.0, NOW)
    assert abs(dates.server_started(NOW - 100.0) - (WALL + 3500.0)) <= 1.0, "the clock was set"


def test_a_loaded_model(dates: Dates) -> None:
    sources = ModelSources(
        READY, speed=ModelSpeed(30.0, 0.1, 0.5), shares=[WaitingShare("ci", 1, 2.04)], device="cpu", worker_pid=11
    )
    shown = model_overview(sources, dates, NOW)
    assert (shown.state, shown.type, shown.recipe, shown.device) == ("ready", "llm", spec("m").recipe, "cpu")
    assert (shown.slots, shown.running, shown.waiting, shown.context) == (4, 2, 1, 4096)
    assert (shown.memory, shown.memory_by_place, shown.load_seconds) == (99, {HOST: 77}, 1.235)
    assert (shown.tokens_per_second, shown.first_token_p50, shown.queue_wait_p50) == (30.0, 0.1, 0.5)
    assert (shown.loaded_at, shown.last_use, shown.expires_at) == (WALL - 200.0, WALL - 10.0, 0.0)
    assert (shown.worker_pid, shown.engine_pid, shown.command) == (11, 12, ["x"])
    assert [(each.key, each.requests, each.wait_s) for each in shown.queue] == [("ci", 1, 2.0)]


def test_an_idle_model_is_the_same_every_second(dates: Dates) -> None:
    deaths = Deaths(1, [Death(33.333, "backend_died", "it has died")])
    idle = READY._replace(running=0, queued=0, expires_at=NOW + 300.0)
    shown = set()
    for second in range(60):
        dates.read(WALL + second + 1e-5 * second, NOW + second)
        sources = ModelSources(idle, deaths=deaths, speed=ModelSpeed(30.0, 0.1, 0.5))
        shown.add(msgspec.json.encode(model_overview(sources, dates, NOW + second)))
    assert len(shown) == 1


def test_a_model_that_failed_or_died_is_shown_although_it_is_not_loaded(dates: Dates) -> None:
    failed = FailedModel("m", Failure(Code.LOAD_FAILED, "it does not fit", detail="oom"), 3, 20.0)
    deaths = Deaths(7, [Death(400.0, "out_of_memory", "it was killed")])
    sources = ModelSources(None, failed=failed, deaths=deaths)
    assert sources.is_shown
    shown = model_overview(sources, dates, NOW)
    assert shown.state == "absent"
    assert shown.failure is not None
    assert shown.failure == type(shown.failure)("load_failed", "it does not fit", 3, WALL + 20.0, "oom")
    assert shown.deaths is not None
    assert (shown.deaths.count, shown.deaths.last) == (7, [ModelDeath(WALL - 100.0, "out_of_memory", "it was killed")])
    again = ModelSources(None, failed=failed.__class__("m", failed.failure, 1, 0.0))
    shown = model_overview(again, dates, NOW)
    assert shown.failure is not None
    assert shown.failure.retry_at == 0.0, "with the next request"


def test_a_load_shows_its_stage_and_when_it_was_asked_for(dates: Dates) -> None:
    load = LoadInProgress("m", LoadStage.LOADING, 12.345, 2, 30, 100, "%")
    view = ModelView("m", "llm", ModelState.LOADING, spec("m"), worker="w1")
    shown = model_overview(ModelSources(view, load), dates, NOW).load
    assert shown is not None
    assert (shown.stage, shown.asked_at, shown.waiting) == (LoadStage.LOADING, round(WALL - 12.345, 1), 2)
    assert (shown.done, shown.total, shown.unit) == (30, 100, "%")


@pytest.mark.parametrize(
    ("sources", "shown"),
    [
        (ModelSources(), False),
        (ModelSources(ModelView("m", "llm", ModelState.ABSENT)), False),
        (ModelSources(ModelView("m", "llm", ModelState.ABSENT, pinned=True)), True),
        (ModelSources(ModelView("m", "llm", ModelState.ABSENT, queued=1)), True),
        (ModelSources(ModelView("m", "llm", ModelState.QUEUED)), True),
        (ModelSources(READY), True),
        (ModelSources(None, LoadInProgress("m", LoadStage.QUEUED, 0.0)), True),
        (ModelSources(None, deaths=Deaths(1, [])), True),
    ],
)
def test_models_that_are_only_known_are_not_shown(sources: ModelSources, shown: bool) -> None:
    assert sources.is_shown is shown


def test_the_keys_with_the_most_requests_are_listed(dates: Dates) -> None:
    shares = [WaitingShare(f"k{number}", number, 0.0) for number in range(1, 3 * MAX_WAITING_KEYS)]
    queue = model_overview(ModelSources(READY, shares=shares), dates, NOW).queue
    assert len(queue) == MAX_WAITING_KEYS
    assert queue[0].requests == 3 * MAX_WAITING_KEYS - 1


def test_requests(dates: Dates) -> None:
    facts = RequestSnapshot(1, 1, 0.0, label="r.1", endpoint="chat/completions", dialect="openai", stream=True)
    running = RequestView(RequestKey("g1", 1, 1), "m", facts, "ci", 480.0, granted_at=490.0)
    shown = request_overview(running, TokensSoFar(42, 491.5), dates)
    assert (shown.id, shown.endpoint, shown.dialect, shown.stream) == ("r.1", "chat/completions", "openai", True)
    assert (shown.model, shown.key, shown.state) == ("m", "ci", "running")
    assert (shown.arrived_at, shown.granted_at, shown.first_token_at) == (WALL - 20.0, WALL - 10.0, WALL - 8.5)
    assert (shown.tokens, shown.position) == (42, 0)
    waiting = RequestView(RequestKey("g1", 1, 1), "m", facts, "", 480.0, position=3, wait_s=7.77)
    shown = request_overview(waiting, TokensSoFar(), dates)
    assert (shown.state, shown.position, shown.wait_s, shown.granted_at) == ("waiting", 3, 7.8, 0.0)
    orphan = request_overview(running._replace(facts=None), TokensSoFar(), dates)
    assert (orphan.id, orphan.endpoint, orphan.state) == ("", "", "running"), "only its worker knows it"


@pytest.mark.parametrize(
    ("report", "state", "message"),
    [
        (DownloadReport("m"), "running", ""),
        (DownloadReport("m", paused=True), "paused", ""),
        (DownloadReport("m", ended=True), "done", ""),
        (DownloadReport("m", ended=True, failure=Failure(Code.DOWNLOAD_FAILED, "no space")), "failed", "no space"),
    ],
)
def test_states_of_downloads(report: DownloadReport, state: str, message: str) -> None:
    shown = download_of(report)
    assert (shown.state, shown.message, shown.total) == (state, message, 0)


def test_a_download_shows_its_file() -> None:
    shown = download_of(DownloadReport("m", Progress(0, "m", "a.gguf", 1, 2, 30, 100)))
    assert (shown.done, shown.total, shown.file, shown.file_index, shown.files) == (30, 100, "a.gguf", 1, 2)


def test_memory_is_shown_in_whole_mib() -> None:
    mib = 1024 * 1024
    places = [
        Capacity(HOST, 8 * mib, 3 * mib + 5, "limit"),
        Capacity("gpu", 4 * mib, mib, name="GPU", used_percent=5.0),
    ]
    assert memory_of(places) == {
        HOST: PlaceMemory(8 * mib, 3 * mib, limited_by="limit"),
        "gpu": PlaceMemory(4 * mib, mib, "GPU", 5.0),
    }
    assert used_memory(places) == {HOST: 5 * mib - 5, "gpu": 3 * mib}


def test_a_node_keeps_its_date_while_its_age_grows() -> None:
    dates = Dates()
    facts = NodeFacts("gpu2", address="10.0.0.2", cpus=8, devices=["nvidia_gpu"])
    first = NodeReport(facts, NodeState.DRAINING, 40.0, [Capacity(HOST, 8, 3)], ["a"], 2, True)
    dates.read(WALL, 500.0)
    shown = nodes_of([first], dates, 500.0)
    place = PlaceMemory(8, 0)
    assert shown == {"gpu2": NodeOverview("draining", WALL - 40.0, "10.0.0.2", 8, ["nvidia_gpu"], {HOST: place}, ["a"])}
    dates.read(WALL + 7.0, 507.0)
    assert nodes_of([structs.replace(first, age=47.0)], dates, 507.0) == shown
