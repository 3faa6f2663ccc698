"""What a server of any make prints: the level of each line."""

from __future__ import annotations

import pytest

from protocol.config.settings import Settings
from protocol.models.recipes import ModelSpec
from workers.backends.command.backend import CommandBackend

SECTION = {"command": ["/bin/own", "{port}"]}
BODY = b'{"model":"m","messages":[{"role":"user","content":"Hi"}]}'


@pytest.mark.parametrize(
    ("line", "level"),
    [
        ("INFO:     Application startup complete.", "quiet"),
        ("(EngineCore pid=7) WARNING 11-26 14:01:10 [vllm.py:725] Model Runner V2 requires Triton", "warning"),
        ("[W1126 14:01:06.168099535 utils.cpp:68] Warning: NUMA binding", "warning"),
        ("[2026-11-26 13:51:05.518] [ctranslate2] [thread 7] [warning] The compute type", "warning"),
        ("[2026-11-26 13:51:05.518] [server] [error] out of memory", "error"),
        ("CRITICAL: no device", "error"),
        ("DeprecationWarning: this is an error of the past", "quiet"),
    ],
)
def test_the_level_of_a_line(line: str, level: str) -> None:
    backend = CommandBackend(ModelSpec("m", "", "command", "command", "llm", "", engine=SECTION), Settings())
    assert backend.parse(line.encode()) == ("debug" if level == "quiet" else level, line)
    backend.request("chat/completions", "", BODY, stream=False)
    assert backend.parse(line.encode()) == ("trace" if level == "quiet" else level, line)
