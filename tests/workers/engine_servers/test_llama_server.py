"""Our own llama-server as a process: its flags, and how it ends."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

from protocol.config.settings import Settings
from tests.support.models.tiny_models import tiny_models
from tests.support.ports import free_port
from tests.support.waiting import wait_for
from tests.workers.direct_engine import DirectEngine, running_engine, spec_of
from workers.backends.flag_table import FlagError
from workers.backends.llamacpp.backend import LlamaCppBackend
from workers.backends.llamacpp.flags import parse
from workers.engine_servers.llama_server.server import flush_log, load_library

TOGETHER = 8
"""Enough processes to starve each other, as on a machine with many loaded models."""


def test_sigterm_ends_it_also_directly_after_its_start(tmp_path: Path) -> None:
    backend = LlamaCppBackend(spec_of("tiny-chat"), Settings(cache_dir=str(tmp_path)))
    backend.prepare()
    quiet = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    with ExitStack() as stack:
        engines = {port: backend.command(port) for port in (free_port() for _ in range(TOGETHER))}
        waiting = {
            port: stack.enter_context(
                subprocess.Popen(command, env=backend.environment(dict(os.environ)), **quiet)  # type: ignore[call-overload]
            )
            for port, command in engines.items()
        }
        for process in waiting.values():
            stack.callback(process.kill)
        ended: list[subprocess.Popen[bytes]] = []

        def end_the_healthy() -> bool:
            for port, process in list(waiting.items()):
                if DirectEngine(port).healthy():
                    process.terminate()
                    ended.append(waiting.pop(port))
            return not waiting

        wait_for(end_the_healthy, "all are healthy", 20)
        # A process that has not installed its handler yet is ended by the signal itself.
        assert {process.wait(10) for process in ended} <= {0, -signal.SIGTERM}


DRAFT = str(tiny_models() / "models" / "tiny-chat.gguf")
PROMPT = b'{"messages": [{"role": "user", "content": "Hello"}], "max_tokens": 8, "temperature": 0}'


@pytest.mark.parametrize(
    "args",
    [
        f"-md {DRAFT} --draft-max 4 --draft-min 1",
        "--spec-type ngram-simple",
        "--rope-scaling linear --rope-scale 1",
        "--rope-scaling yarn --yarn-orig-ctx 64",
        "--n-cpu-moe 2",
        "--cpu-moe",
        "--numa distribute",
    ],
)
def test_flags_that_it_shares_with_llama_server(args: str, tmp_path: Path) -> None:
    with running_engine("tiny-chat", str(tmp_path), llamacpp_args=args) as (engine, _):
        status, body = engine.post("/v1/chat/completions", PROMPT)
        assert status == 200, body
        if "-md" in args:
            assert json.loads(body)["timings"]["draft_n"] > 0


def test_a_grammar_for_every_answer(tmp_path: Path) -> None:
    with running_engine("tiny-chat", str(tmp_path), llamacpp_args="""--grammar 'root ::= "ab"'""") as (engine, _):
        _, body = engine.post("/v1/chat/completions", PROMPT)
        assert json.loads(body)["choices"][0]["message"]["content"] == "ab"


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        ("--override-kv a=int:1", "is not in the xllamacpp package"),
        ("--draft-max -1", "--draft-max cannot be -1"),
        ("--rope-scale 0", "--rope-scale cannot be 0"),
        ("--spec-type ngram-simple,magic", "--spec-type cannot be magic"),
        ("--numa mirror", "--numa cannot be mirror"),
    ],
)
def test_values_that_it_refuses(args: str, expected: str) -> None:
    with pytest.raises(FlagError, match=re.escape(expected)):
        parse(args.split())


def test_the_reason_for_a_refused_file_is_printed_before_the_end(tmp_path: Path) -> None:
    file = tmp_path / "unheard.gguf"
    file.write_bytes((tiny_models() / "models" / "tiny-tale.gguf").read_bytes().replace(b"llama", b"zzama"))
    command = [sys.executable, "-m", "workers.engine_servers.llama_server", "-m", str(file), "-t", "1"]
    engines = [
        subprocess.Popen([*command, "--port", str(free_port())], stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        for _ in range(TOGETHER)
    ]
    for engine in engines:
        printed, _ = engine.communicate(timeout=30)
        assert engine.returncode == 1
        assert b"unknown model architecture: 'zzama'" in printed
    assert flush_log(load_library().__file__), "the wheel has the functions"
    assert not flush_log(str(file)), "another wheel may have none"
