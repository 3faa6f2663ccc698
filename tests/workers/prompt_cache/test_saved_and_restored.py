"""A real worker with engines that misbehave while they save and restore prompt caches, and with one real engine."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
import time
import zlib
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from protocol.messages.engines import EngineDied, EngineReady, LoadFailed, StartEngine
from protocol.messages.peers import Shutdown
from protocol.models import prompt_caches
from tests.fake_engines.llama_server import SLOT_TOKENS, program
from tests.support.waiting import wait_for
from tests.workers.direct_engine import spec_of
from tests.workers.worker_process import CHAT, WorkerProcess, running_worker
from workers.prompt_cache.restore import RESTORE_LIMIT_S
from workers.prompt_cache.store import MANIFEST

SPEC = structs.replace(spec_of("tiny-chat", keep_prompt_cache=True, slots=2), backend="system")
REAL = spec_of("tiny-chat", keep_prompt_cache=True, slots=2)
PATIENT: dict[str, Any] = {"prompt_cache_save_timeout": 60}
"""Longer than a worker may take to end in these tests."""
LONG = {**CHAT, "messages": [{"role": "user", "content": "z" * 1000}], "max_tokens": 4}


def use(worker: WorkerProcess, number: int = 1, body: dict[str, Any] = LONG) -> dict[str, Any]:
    """Send a prompt to the engine; return its answer."""
    if worker.sub is None:
        worker.subscribe()
    worker.run(number, "chat/completions", body)
    received = worker.ended(number)
    assert received.done
    answer: dict[str, Any] = json.loads(received.data)
    return answer


def left(worker: WorkerProcess) -> float:
    """Make the worker leave as for an eviction; return the seconds that this takes."""
    begun = time.monotonic()
    worker.send(Shutdown(0.0, "it is evicted for another model"))
    assert worker.process.wait(20) == 0
    return time.monotonic() - begun


def entries(home: Path) -> list[Path]:
    return prompt_caches.entries_of(str(home / "cache"), SPEC.name)


def others(home: Path) -> list[str]:
    """All files besides the entries: drafts and links, which should not remain."""
    folders = [prompt_caches.root(str(home / "cache")), *(home / "cache" / "slots").iterdir()]
    return [file.name for folder in folders if folder.is_dir() for file in folder.glob(".*")]


def is_at_the_second_slot(home: Path) -> bool:
    return any(prompt_caches.root(str(home / "cache")).glob(".draft-*/slot-1"))


@pytest.fixture(scope="module")
def saved_by_fake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The home of a worker that has left an entry of :data:`SPEC`."""
    home = tmp_path_factory.mktemp("fake")
    with running_worker(home, llama_server=program(home, "well_behaved")) as one:
        one.load(SPEC)
        use(one)
        left(one)
    return home


@pytest.fixture(scope="module")
def saved_by_real(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """The same for :data:`REAL`, and the answer to its request."""
    home = tmp_path_factory.mktemp("real")
    with running_worker(home) as one:
        one.load(REAL)
        answer = use(one)
        left(one)
    return home, answer


def copied(saved: Path, home: Path) -> Path:
    """Give a worker at ``home`` the entry that another worker has left; return it."""
    shutil.copytree(saved / "cache", home / "cache")
    (entry,) = entries(home)
    assert not others(home)
    return entry


def test_slots_with_tokens_are_saved_when_the_worker_leaves_and_restored_at_the_next_load(
    tmp_path: Path, saved_by_fake: Path
) -> None:
    entry = copied(saved_by_fake, tmp_path)
    assert sorted(file.name for file in entry.iterdir()) == [MANIFEST, "slot-0"], "slot 1 had no tokens"
    with running_worker(tmp_path, llama_server=program(tmp_path, "well_behaved")) as one:
        ready = one.load(SPEC)
        assert ready.restored_tokens == SLOT_TOKENS
        assert ready.leave_seconds > 5.0
        left(one)
    assert entries(tmp_path) == [entry], "it stays: nothing was read since"
    with running_worker(tmp_path, llama_server=program(tmp_path, "well_behaved")) as one:
        one.load(SPEC)
        use(one)
        left(one)
    (newer,) = entries(tmp_path)
    assert newer != entry
    assert not others(tmp_path)


def test_an_engine_that_cannot_save_ends_all_the_same(tmp_path: Path) -> None:
    with running_worker(tmp_path, llama_server=program(tmp_path, "slot_save_fails"), **PATIENT) as one:
        one.load(SPEC)
        use(one)
        left(one)
    assert not entries(tmp_path)
    assert not others(tmp_path)


def test_an_engine_that_dies_while_it_saves_delays_nothing(tmp_path: Path) -> None:
    with running_worker(tmp_path, llama_server=program(tmp_path, "slot_save_crashes"), **PATIENT) as one:
        one.load(SPEC)
        use(one)
        left(one)
    with running_worker(tmp_path, llama_server=program(tmp_path, "well_behaved")) as one:
        assert one.load(SPEC).restored_tokens in (0, SLOT_TOKENS), "what was whole may have been kept"
        one.until(lambda: not others(tmp_path), "nothing else is left")


def test_a_save_that_takes_too_long_is_cut_off_and_keeps_what_is_whole(tmp_path: Path) -> None:
    with running_worker(
        tmp_path, llama_server=program(tmp_path, "slot_save_hangs"), prompt_cache_save_timeout=1
    ) as one:
        assert one.load(SPEC).leave_seconds == 2
        use(one)
        assert left(one) >= 1
    (entry,) = entries(tmp_path)
    assert sorted(file.name for file in entry.iterdir()) == [MANIFEST, "slot-0"]
    assert not others(tmp_path)


def test_a_save_ends_when_the_grace_of_the_server_does(tmp_path: Path) -> None:
    with running_worker(tmp_path, llama_server=program(tmp_path, "slot_save_hangs"), **PATIENT) as one:
        one.load(SPEC)
        use(one)
        one.send(Shutdown(0.0))
        wait_for(lambda: is_at_the_second_slot(tmp_path), "it is saving")
        one.send(Shutdown(0.0, "grace is over", draining=True))
        assert one.process.wait(5) == 0
    assert not entries(tmp_path)
    assert not others(tmp_path)


def test_an_engine_whose_requests_are_cut_off_saves_nothing(tmp_path: Path) -> None:
    with running_worker(tmp_path, llama_server=program(tmp_path, "hangs_mid_stream"), **PATIENT) as one:
        one.load(SPEC)
        one.subscribe()
        one.run(1, "chat/completions", LONG, stream=True)
        one.begun(1)
        left(one)
    assert not entries(tmp_path)


def test_a_worker_that_is_killed_while_it_saves_leaves_nothing_behind(tmp_path: Path) -> None:
    with running_worker(tmp_path, llama_server=program(tmp_path, "slot_save_hangs"), **PATIENT) as one:
        one.load(SPEC)
        use(one)
        one.send(Shutdown(0.0))
        wait_for(lambda: is_at_the_second_slot(tmp_path), "it is saving")
        one.process.kill()
    assert others(tmp_path)
    with running_worker(tmp_path, llama_server=program(tmp_path, "well_behaved")) as one:
        one.until(lambda: not any("draft" in name for name in others(tmp_path)), "a worker's start removes it")
        assert one.load(SPEC).restored_tokens == 0
        assert not others(tmp_path), "and its load the links"
    assert not entries(tmp_path)


def test_a_workers_start_removes_what_is_more_than_the_limit(tmp_path: Path, saved_by_fake: Path) -> None:
    copied(saved_by_fake, tmp_path)
    with running_worker(tmp_path, prompt_cache_bytes=0) as one:
        one.until(lambda: not entries(tmp_path), "it is removed")


@pytest.mark.parametrize("engine", ["slot_restore_crashes", "slot_restore_refused"])
def test_an_engine_that_cannot_restore_starts_again_without(tmp_path: Path, saved_by_fake: Path, engine: str) -> None:
    copied(saved_by_fake, tmp_path)
    with running_worker(tmp_path, llama_server=program(tmp_path, engine)) as one:
        ready = one.load(SPEC)
        assert ready.restored_tokens == 0
        use(one)
        wait_for(lambda: not entries(tmp_path), "the entry is removed")
        assert not others(tmp_path)
        assert not [message for message in one.messages if isinstance(message, EngineDied | LoadFailed)]


def test_a_broken_file_is_not_given_to_the_engine(tmp_path: Path, saved_by_fake: Path) -> None:
    entry = copied(saved_by_fake, tmp_path)
    with (entry / "slot-0").open("r+b") as file:
        file.write(b"?")
    with running_worker(tmp_path, llama_server=program(tmp_path, "slot_restore_crashes")) as one:
        assert one.load(SPEC).restored_tokens == 0
        assert not entries(tmp_path)


def test_an_engine_that_died_with_its_requests_starts_without_what_it_had_restored(
    tmp_path: Path, saved_by_fake: Path
) -> None:
    copied(saved_by_fake, tmp_path)
    with running_worker(tmp_path, llama_server=program(tmp_path, "well_behaved")) as one:
        assert one.load(SPEC).restored_tokens
        os.kill(one.ready.engine_pid, signal.SIGKILL)
        one.expect(EngineDied)
        one.send(StartEngine(SPEC))
        assert one.expect(EngineReady).restored_tokens == 0


def test_a_model_that_is_told_to_leave_while_it_restores_ends(tmp_path: Path, saved_by_fake: Path) -> None:
    copied(saved_by_fake, tmp_path)
    with running_worker(tmp_path, llama_server=program(tmp_path, "slot_restore_hangs")) as one:
        one.send(StartEngine(SPEC))
        wait_for(lambda: any("prompt-cache" in name for name in others(tmp_path)), "it restores")
        assert left(one) < RESTORE_LIMIT_S
    assert len(entries(tmp_path)) == 1
    assert not others(tmp_path)


def test_a_real_engine_goes_on_where_it_was(tmp_path: Path, saved_by_real: tuple[Path, dict[str, Any]]) -> None:
    home, first = saved_by_real
    assert first["timings"]["cache_n"] == 0
    entry = copied(home, tmp_path)
    turns = [*LONG["messages"], first["choices"][0]["message"], {"role": "user", "content": "more"}]
    with running_worker(tmp_path) as one:
        prompt = first["usage"]["prompt_tokens"]
        assert prompt <= one.load(REAL).restored_tokens <= prompt + 4
        second = use(one, body={**LONG, "messages": turns})
        assert second["timings"]["cache_n"] >= prompt
        assert second["timings"]["prompt_n"] < 100
        left(one)
    (newer,) = prompt_caches.entries_of(str(tmp_path / "cache"), REAL.name)
    assert newer != entry


def test_a_real_engine_that_may_not_write_that_much_ends_all_the_same(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """A limit for the size of files stands in for a full disk: both make the write fail."""
    small = tmp_path / "small-files"
    small.write_text(f'#!/bin/sh\nulimit -f 100\nexec {sys.executable} -m workers.engine_servers.llama_server "$@"\n')
    small.chmod(0o700)
    spec = structs.replace(REAL, backend="system")
    with running_worker(tmp_path, llama_server=str(small)) as one:
        one.load(spec)
        use(one)
        left(one)
    assert "prompt caches not saved" in capfd.readouterr().err
    assert not entries(tmp_path)
    assert not others(tmp_path)


def test_a_real_engine_dies_of_a_file_that_was_cut_off_and_starts_again(
    tmp_path: Path, saved_by_real: tuple[Path, dict[str, Any]]
) -> None:
    """The checksum is right, so only the engine itself can notice."""
    entry = copied(saved_by_real[0], tmp_path)
    manifest = json.loads((entry / MANIFEST).read_bytes())
    slot = manifest["slots"][0]
    path = entry / f"slot-{slot['slot']}"
    os.truncate(path, slot["size"] // 2)
    slot["size"], slot["checksum"] = slot["size"] // 2, zlib.crc32(path.read_bytes())
    (entry / MANIFEST).write_text(json.dumps(manifest))
    with running_worker(tmp_path) as one:
        one.send(StartEngine(REAL))
        assert one.expect(EngineReady, 30).restored_tokens == 0
        assert use(one)["timings"]["cache_n"] == 0
        wait_for(lambda: not entry.exists(), "the entry is removed")
