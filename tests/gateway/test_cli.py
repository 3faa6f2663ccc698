"""Every verb of the terminal against a stand-in server: what it asks, what it prints, how it ends."""

from __future__ import annotations

import io
import json
import os
import pty
import select
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Self

import msgspec
import pytest
import simple_websocket
from click import Command, Context, Option

from gateway.cli.load import pair
from gateway.cli.main import VERBS, main
from gateway.dialects.health import health_body
from protocol.admin import Health, Peer, RunningModel, TroubledModel
from protocol.failures import Code, Failure
from protocol.recipes import ModelSpec
from tests.gateway.webserver import Reply, WebServer, serving

LAUNCH = Path(__file__).resolve().parents[2] / "deploy" / "launch"
DONE = "data: [DONE]\n\n"
Ends = Callable[..., tuple[int, str, str]]


@pytest.fixture(autouse=True)
def nothing_around(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No configuration of this machine or of the developer."""
    for name in list(os.environ):
        if name.startswith(("LEMONBUS_", "LEMONADE_", "_LEMONBUS")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setenv("HOME", str(tmp_path))


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[WebServer]:
    with serving() as standin:
        monkeypatch.setenv("LEMONBUS_URL", standin.url)
        yield standin


@pytest.fixture
def lemonbus(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Ends:
    """Run a verb in this process; return its exit code, output and complaints."""

    def run(*arguments: str, stdin: str = "") -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "stdin", io.StringIO(stdin))
        code = main(list(arguments))
        output = capsys.readouterr()
        return code, output.out, output.err

    return run


def chunk(**delta: Any) -> str:
    return f"data: {json.dumps({'choices': [{'index': 0, 'delta': delta, 'finish_reason': None}]})}\n\n"


def end(reason: str = "stop") -> str:
    last = {"choices": [{"index": 0, "delta": {}, "finish_reason": reason}]}
    usage = {"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 2}}
    return f"data: {json.dumps(last)}\n\ndata: {json.dumps(usage)}\n\n"


# ── every verb ─────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_has_help(verb: str, lemonbus: Ends) -> None:
    code, out, _ = lemonbus(verb, "--help")
    assert code == 0
    assert out.startswith(f"Usage: lemonbus {verb}")


def test_help_lists_all_verbs_and_exit_codes(lemonbus: Ends) -> None:
    code, out, _ = lemonbus("--help")
    assert code == 0
    assert all(verb in out for verb in VERBS)
    assert "3 the server cannot be reached" in out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["sttus"], "Did you mean status?"),
        (["zzz"], "See lemonbus --help."),
        (["list", "--nope"], "No such option"),
        (["unload"], "Name a MODEL, or say --all."),
        (["unload", "A", "--all"], "Name a MODEL, or say --all."),
        (["load", "A", "-o", "x"], "expected KEY=VALUE"),
        (["run", "A", " "], "The prompt is empty."),
        (["run", "A"], "The prompt is empty."),
        (["run", "A", "hi", "--max-tokens", "0"], "--max-tokens"),
        (["logs", "--level", "loud"], "--level"),
        (["status", "--url", "localhost:1"], "expected http://HOST:PORT"),
        (["status", "--url", "http://localhost:x"], "http://localhost:x"),
        (["completion", "tcsh"], "tcsh"),
    ],
)
def test_wrong_usage_ends_with_2(arguments: list[str], said: str, server: WebServer, lemonbus: Ends) -> None:
    code, out, err = lemonbus(*arguments)
    assert (code, out) == (2, "")
    assert said in err
    assert not server.asked


CALLS = [["status"], ["list"], ["load", "A"], ["unload", "A"], ["pull", "A"], ["run", "A", "hi"], ["logs"]]


@pytest.mark.parametrize("arguments", CALLS, ids=lambda words: words[0])
def test_no_server_ends_with_3(arguments: list[str], lemonbus: Ends, free_port: int) -> None:
    code, out, err = lemonbus(*arguments, "--url", f"http://127.0.0.1:{free_port}")
    assert (code, out) == (3, "")
    assert err == f"lemonbus: cannot reach http://127.0.0.1:{free_port}: Connection refused. Is the server running?\n"


@pytest.fixture
def free_port() -> Iterator[int]:
    """A port that is taken but not listened on, so that nobody else can come to listen there."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield taken.getsockname()[1]


@pytest.mark.parametrize(("status", "code"), [(401, 4), (403, 4), (404, 1), (409, 1), (500, 1), (503, 1)])
def test_errors_carry_message_code_request_and_when_to_retry(
    status: int, code: int, server: WebServer, lemonbus: Ends
) -> None:
    body = {"status": "error", "message": "m", "error": {"message": "no", "code": "c", "request_id": "req-1"}}
    server.replies["POST", "/v1/load"] = Reply(body, status, Retry_After="7")
    assert lemonbus("load", "A") == (code, "", "lemonbus: no (c, req-1); try again in 7 s\n")


def test_a_foreign_server_is_recognised(server: WebServer, lemonbus: Ends) -> None:
    server.replies["GET", "/v1/models?show_all=true"] = Reply(pieces=["<html>"])
    assert lemonbus("list") == (1, "", f"lemonbus: {server.url} did not answer in JSON; is this a lemonbus server?\n")
    server.replies["GET", "/v1/models?show_all=true"] = Reply(pieces=["<html>"], status=502)
    assert lemonbus("list") == (1, "", "lemonbus: the server answered 502 Bad Gateway\n")


def test_the_key_travels_and_a_prefix_in_the_url_is_tolerated(
    server: WebServer, lemonbus: Ends, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.replies["GET", "/v1/models?show_all=true"] = Reply({"data": []})
    monkeypatch.setenv("LEMONBUS_API_KEY", "k")
    assert lemonbus("list", "--url", server.url + "/api/v1/")[0] == 0
    assert server.asked[-1][1] == "/v1/models?show_all=true"
    assert server.asked[-1][3]["Authorization"] == "Bearer k"


def test_address_and_key_come_from_the_configuration(
    server: WebServer, lemonbus: Ends, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("LEMONBUS_URL")
    (tmp_path / "lemonbus").mkdir()
    port = server.url.rpartition(":")[2]
    (tmp_path / "lemonbus" / "lemonbus.toml").write_text(f"host = '0.0.0.0'\nport = {port}\napi_key = 'k'")
    server.replies["GET", "/v1/models?show_all=true"] = Reply({"data": []})
    assert lemonbus("list")[0] == 0
    assert server.asked[-1][3]["Authorization"] == "Bearer k"
    assert lemonbus("list", "--url", server.url)[0] == 0
    assert "Authorization" not in server.asked[-1][3]


# ── version, config, completion ────────────────────────────────────────────────────────────────────────────────


def test_version(lemonbus: Ends) -> None:
    code, out, _ = lemonbus("version")
    assert code == 0
    assert out.startswith("lemonbus ")
    assert json.loads(lemonbus("version", "--json")[1])["version"] == out.split()[1]


def test_version_imports_nothing_heavy() -> None:
    """What makes it fast, without a clock."""
    heavy = "{'msgspec', 'zmq', 'gevent', 'falcon', 'rich', 'http.client', 'simple_websocket', 'asyncio'}"
    program = f"import sys; from gateway.cli.main import main; main(['version']); print({heavy} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=30, check=True)
    assert done.stdout.splitlines()[1] == "set()"


def test_config_shows_values_origins_and_no_secret(
    lemonbus: Ends, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = tmp_path / "my.toml"
    file.write_text("\nport = 4711")
    monkeypatch.setenv("LEMONBUS_API_KEY", "hush")
    monkeypatch.setenv("LEMONBUS_PROT", "1")
    code, out, err = lemonbus("config", "--config", str(file), "--json")
    shown = json.loads(out)
    assert code == 0
    assert shown["port"] == {"value": 4711, "origin": "file", "where": f"{file}:2"}
    assert shown["host"]["origin"] == "default"
    assert shown["api_key"] == {"value": "********", "origin": "environment", "where": "LEMONBUS_API_KEY"}
    assert "LEMONBUS_PORT?" in err
    table = lemonbus("config", "--config", str(file))[1]
    assert "hush" not in out + table
    assert any(line.split() == ["port", "4711", f"{file}:2"] for line in table.splitlines())


def test_bad_configuration_ends_with_2(lemonbus: Ends, tmp_path: Path) -> None:
    file = tmp_path / "my.toml"
    file.write_text("port = 'x'")
    for verb in ("config", "serve"):
        code, out, err = lemonbus(verb, "--config", str(file))
        assert (code, out) == (2, "")
        assert err == f"lemonbus: {file}:1: port: expected a whole number from 0 up to 65535, got 'x'\n"


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts(shell: str, lemonbus: Ends) -> None:
    code, out, _ = lemonbus("completion", shell)
    assert code == 0
    assert "_LEMONBUS_COMPLETE" in out


def test_completion_knows_verbs_choices_and_models(server: WebServer) -> None:
    server.replies["GET", "/v1/models?show_all=true"] = Reply({"data": [{"id": "Tiny"}, {"id": "Other"}]})

    def complete(words: str, index: int) -> list[str]:
        asked = {"_LEMONBUS_COMPLETE": "bash_complete", "COMP_WORDS": words, "COMP_CWORD": str(index)}
        done = subprocess.run(
            [sys.executable, LAUNCH],
            env={**os.environ, **asked},
            capture_output=True,
            text=True,
            timeout=30,
            check=True,
        )
        return [line.rpartition(",")[2] for line in done.stdout.split()]

    assert complete("lemonbus lo", 1) == ["load", "logs"]
    assert complete("lemonbus load T", 2) == ["Tiny"]
    assert complete("lemonbus serve --log-level tr", 3) == ["trace"]
    assert complete("lemonbus load --url http://127.0.0.1:1 T", 4) == []


# ── serve ──────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def handed_over(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What serve becomes, instead of becoming it: the command, then the settings."""
    seen: list[Any] = []

    def become(program: str, command: list[str]) -> None:
        seen.extend([program, command, json.loads(os.environ.pop("LEMONBUS_SETTINGS"))])

    monkeypatch.setattr(os, "execv", become)
    return seen


def test_serve_becomes_the_supervisor_with_the_settings(
    lemonbus: Ends, handed_over: list[Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("LEMONBUS_API_KEY", "k")
    words = "--host 0.0.0.0 --port 0 --load A --load B --max-loaded-models 1 --gateway-workers 3 --no-offline"
    words += " --log-level debug --log-format json --state-dir ."
    monkeypatch.chdir(tmp_path)
    assert lemonbus("serve", *words.split()) == (0, "", "")
    program, command, settings = handed_over
    assert (program, command) == (sys.executable, [sys.executable, "-m", "supervisor"])
    expected = {"host": "0.0.0.0", "port": 0, "load": ["A", "B"], "max_loaded_models": 1, "gateway_workers": 3}
    assert expected.items() <= settings.items()
    assert settings["state_dir"] == str(tmp_path)
    assert settings["api_key"] == "k"
    assert not any(word == "k" for word in command)


def test_serve_refuses_to_be_open_by_accident(lemonbus: Ends, handed_over: list[Any]) -> None:
    code, out, err = lemonbus("serve", "--host", "0.0.0.0")
    assert (code, out, handed_over) == (2, "", [])
    assert err.count("\n") == 1
    assert "--allow-remote" in err
    assert lemonbus("serve", "--host", "0.0.0.0", "--allow-remote")[0] == 0
    assert handed_over


def test_there_is_no_flag_for_the_key(lemonbus: Ends) -> None:
    assert "--api-key" not in lemonbus("serve", "--help")[1]


# ── list, status ───────────────────────────────────────────────────────────────────────────────────────────────


def test_list(server: WebServer, lemonbus: Ends) -> None:
    here = {"id": "Tiny", "size": 0.098, "recipe": "llamacpp", "labels": ["tool-calling"], "downloaded": True}
    busy = {**here, "id": "Busy", "labels": [], "loaded": True}
    away = {**here, "id": "Away", "size": 0.0, "labels": [], "downloaded": False}
    server.replies["GET", "/v1/models?show_all=true"] = Reply({"data": [here, busy, away]})
    code, out, _ = lemonbus("list")
    assert code == 0
    assert [line.split() for line in out.splitlines()] == [
        ["NAME", "SIZE", "STATE", "RECIPE", "LABELS"],
        ["Tiny", "98", "MB", "downloaded", "llamacpp", "tool-calling"],
        ["Busy", "98", "MB", "loaded", "llamacpp"],
    ]
    assert lemonbus("list", "--all")[1].splitlines()[3].split() == ["Away", "-", "-", "llamacpp"]
    assert json.loads(lemonbus("list", "--json")[1]) == {"data": [here, busy]}
    server.replies["GET", "/v1/models?show_all=true"] = Reply({"data": [away]})
    code, out, err = lemonbus("list")
    assert (code, out) == (0, "")
    assert "lemonbus list --all" in err


def test_status_of_an_idle_server_with_the_documented_fields_only(server: WebServer, lemonbus: Ends) -> None:
    server.replies["GET", "/v1/health"] = Reply({"status": "ok", "version": "1", "all_models_loaded": []})
    code, out, _ = lemonbus("status")
    assert code == 0
    assert out.splitlines()[0] == f"lemonbus 1 at {server.url}: ok"
    assert "No model is loaded" in out


def test_status_of_a_busy_house(server: WebServer, lemonbus: Ends) -> None:
    """The report is made by the code that makes it in the server."""
    spec = ModelSpec("A", "o/r:Q4", "llamacpp", "cpu", "llm", "/m.gguf", pinned=True)
    ready = RunningModel(spec, "w1", "ready", 10, time.time() - 70, 4, 4096, granted=2, queued=1)
    loading = RunningModel(ModelSpec("B", "o/b:Q4", "llamacpp", "cpu", "llm", "/b"), "w2", "loading", 11, 0.0)
    health = Health(
        *("draining", "0.1.0", "b1", 1, 3700.0, [ready, loading], {"llm": 4}),
        granted=2,
        queued=1,
        troubled=[TroubledModel("C", Failure(Code.LOAD_FAILED, "no such\nfile"), 3, 8.0)],
        downloads=["D"],
        peers=[Peer("gateway", "g1", 7), Peer("worker", "w1", 10)],
    )
    server.replies["GET", "/v1/health"] = Reply(pieces=[msgspec.json.encode(health_body(health, 1)).decode()])
    code, out, _ = lemonbus("status")
    lines = [" ".join(line.split()) for line in out.splitlines()]
    assert code == 0
    assert lines[0] == f"lemonbus 0.1.0 at {server.url}: draining, up 1 h 1 min, 2 running, 1 waiting"
    assert lines[1] == "Downloading: D"
    assert "A (pinned) ready 2 of 4 1 4096 llamacpp 1 min ago" in lines
    assert "B loading 0 of ? 0 - - -" in lines
    assert "C 3 in 8 s no such file" in lines
    assert lines[-1] == "Processes: supervisor 1, gateway 7, worker 10"
    assert json.loads(lemonbus("status", "--json")[1])["lemonbus"]["pid"] == 1


# ── load, unload, pull ─────────────────────────────────────────────────────────────────────────────────────────


def test_load_sends_options_and_prints_the_message(server: WebServer, lemonbus: Ends) -> None:
    server.replies["POST", "/v1/load"] = Reply({"status": "success", "message": "Loaded model: A"})
    words = "load A --ctx-size 512 -o llamacpp_args=--no-mmap -o llamacpp-backend=cpu --save-options --pin"
    assert lemonbus(*words.split()) == (0, "Loaded model: A\n", "")
    assert server.last() == {
        "model_name": "A",
        "ctx_size": 512,
        "llamacpp_args": "--no-mmap",
        "llamacpp_backend": "cpu",
        "save_options": True,
        "pinned": True,
    }
    assert json.loads(lemonbus("load", "A", "--json")[1])["status"] == "success"
    assert server.last() == {"model_name": "A"}


@pytest.mark.parametrize(
    ("word", "value"),
    [("1", 1), ("-2", -2), ("0.5", 0.5), ("1e3", 1000.0), ("nan", "nan"), ("1_0", "1_0"), ("", ""), ("a=b", "a=b")],
)
def test_option_values(word: str, value: object) -> None:
    options = pair(Context(Command("load")), Option(["--option"]), (f"k={word}",))
    assert options == {"k": value}
    assert type(options["k"]) is type(value)


def test_unload(server: WebServer, lemonbus: Ends) -> None:
    server.replies["POST", "/v1/unload"] = Reply({"status": "success", "message": "Model unloaded successfully"})
    assert lemonbus("unload", "A") == (0, "Model unloaded successfully\n", "")
    assert server.last() == {"model_name": "A"}
    assert lemonbus("unload", "--all")[0] == 0
    assert server.last() == {}


def progress(percent: int) -> str:
    facts = {"file": "m.gguf", "file_index": 1, "total_files": 1, "bytes_downloaded": percent, "bytes_total": 100}
    return f"event: progress\ndata: {json.dumps({**facts, 'percent': percent})}\n\n"


COMPLETE = 'event: complete\ndata: {"file_index":1,"total_files":1,"percent":100}\n\n'


def test_pull_says_a_line_for_every_tenth(server: WebServer, lemonbus: Ends) -> None:
    server.replies["POST", "/v1/pull"] = Reply(pieces=[*map(progress, range(0, 101, 2)), COMPLETE])
    code, out, err = lemonbus("pull", "A")
    assert (code, out) == (0, "Installed model: A\n")
    assert server.last() == {"model_name": "A", "stream": True}
    lines = err.splitlines()
    assert len(lines) == 11
    assert lines[0] == "m.gguf (1/1) 0 % of 100 B"


def test_pull_as_json(server: WebServer, lemonbus: Ends) -> None:
    server.replies["POST", "/v1/pull"] = Reply(pieces=[progress(50), COMPLETE])
    code, out, err = lemonbus("pull", "A", "--json")
    assert (code, err) == (0, "")
    assert [json.loads(line)["event"] for line in out.splitlines()] == ["progress", "complete"]


def test_pull_shows_a_bar_on_a_terminal(server: WebServer) -> None:
    server.replies["POST", "/v1/pull"] = Reply(pieces=[progress(50), COMPLETE])
    with Terminal("pull", "A") as terminal:
        assert "━" in terminal.until("Installed model: A")
        assert terminal.ends() == 0


@pytest.mark.parametrize(
    ("pieces", "cut", "code", "said"),
    [
        (['event: error\ndata: {"error":"disk full","code":"download_failed","request_id":"req-1"}\n\n'], False, 1,
         "disk full (download_failed, req-1)"),
        ([progress(5)], False, 1, "the download of A broke off"),
        ([progress(5)], True, 1, "broke off"),
    ],
)  # fmt: skip
def test_pull_fails(pieces: list[str], cut: bool, code: int, said: str, server: WebServer, lemonbus: Ends) -> None:
    server.replies["POST", "/v1/pull"] = Reply(pieces=pieces, cut=cut)
    ended, out, err = lemonbus("pull", "A")
    assert (ended, out) == (code, "")
    assert said in err


# ── run ────────────────────────────────────────────────────────────────────────────────────────────────────────

CHAT = ("POST", "/v1/chat/completions")


def test_run_prints_the_answer(server: WebServer, lemonbus: Ends) -> None:
    server.replies[CHAT] = Reply(
        pieces=[": ping\n\n", chunk(role="assistant"), chunk(reasoning_content="hm"), chunk(content="Grü"),
                chunk(content="ße")[:20], chunk(content="ße")[20:], end(), DONE]
    )  # fmt: skip
    words = ["run", "A", "hi", "--system", "be short", "--max-tokens", "9", "--temperature", "0"]
    assert lemonbus(*words) == (0, "Grüße\n", "")
    request = server.last()
    assert request["messages"] == [{"role": "system", "content": "be short"}, {"role": "user", "content": "hi"}]
    assert (request["model"], request["max_tokens"], request["temperature"]) == ("A", 9, 0)


def test_run_reads_a_pipe_and_prints_json(server: WebServer, lemonbus: Ends) -> None:
    server.replies[CHAT] = Reply(pieces=[chunk(content="yes"), end("length"), DONE])
    code, out, _ = lemonbus("run", "A", "-", "--json", stdin="from a pipe")
    assert code == 0
    assert json.loads(out) == {
        "model": "A",
        "content": "yes",
        "finish_reason": "length",
        "usage": {"prompt_tokens": 3, "completion_tokens": 2},
    }
    assert server.last()["messages"] == [{"role": "user", "content": "from a pipe"}]
    code, out, err = lemonbus("run", "A", stdin="from a pipe")
    assert (code, out) == (0, "yes\n")
    assert "cut" in err


@pytest.mark.parametrize(
    ("pieces", "cut", "code", "said"),
    [
        ([chunk(content="so"), 'data: {"error":{"message":"gone","code":"backend_died","request_id":"r"}}\n\n'],
         False, 1, "gone (backend_died, r)"),
        ([chunk(content="so"), end()], False, 1, "without its end mark"),
        ([chunk(content="so")], True, 1, "broke off"),
    ],
)  # fmt: skip
def test_run_never_takes_a_broken_answer_for_a_whole_one(
    pieces: list[str], cut: bool, code: int, said: str, server: WebServer, lemonbus: Ends
) -> None:
    server.replies[CHAT] = Reply(pieces=pieces, cut=cut)
    ended, out, err = lemonbus("run", "A", "hi")
    assert (ended, out) == (code, "so\n")
    assert said in err


class Terminal:
    """A verb with a terminal of its own, as a person has it."""

    def __init__(self, *arguments: str) -> None:
        self._arguments = arguments
        self._seen = ""

    def __enter__(self) -> Self:
        self._fd, theirs = pty.openpty()
        self._process = subprocess.Popen(
            [sys.executable, LAUNCH, *self._arguments],
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
            env={**os.environ, "TERM": "xterm", "INPUTRC": "/dev/null"},
        )
        os.close(theirs)
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait(10)
        os.close(self._fd)

    def type(self, text: str) -> None:
        os.write(self._fd, text.encode())

    def until(self, text: str, seconds: float = 20) -> str:
        """Return what is shown up to ``text``, and forget it."""
        deadline = time.monotonic() + seconds
        while text not in self._seen:
            ready = select.select([self._fd], [], [], max(0, deadline - time.monotonic()))[0]
            assert ready, f"waited for {text!r}, saw {self._seen!r}"
            try:
                self._seen += os.read(self._fd, 65536).decode("utf-8", "replace")
            except OSError:
                assert text in self._seen, f"ended before {text!r}, after {self._seen!r}"
        before, _, self._seen = self._seen.partition(text)
        return before

    def ends(self) -> int:
        return self._process.wait(20)


def test_a_conversation_remembers_survives_errors_and_can_begin_anew(server: WebServer) -> None:
    def reply(request: Any) -> Reply:
        if request["messages"][-1]["content"] == "fail":
            return Reply({"error": {"message": "busy", "code": "overloaded"}}, 503)
        return Reply(pieces=[chunk(content=f"heard {len(request['messages'])}\x1b[2J"), end(), DONE])

    server.replies[CHAT] = reply
    with Terminal("run", "A", "--system", "s") as terminal:
        terminal.until(">>> ")
        for typed, shown in (("one", "heard 2[2J"), ("fail", "busy (overloaded)"), ("two", "heard 4[2J")):
            terminal.type(typed + "\n")
            terminal.until(shown)
            terminal.until(">>> ")
        terminal.type("/clear\n")
        terminal.until(">>> ")
        terminal.type("three\n")
        terminal.until("heard 2[2J")
        terminal.until(">>> ")
        terminal.type("\x04")
        assert terminal.ends() == 0
    assert server.last()["messages"] == [{"role": "system", "content": "s"}, {"role": "user", "content": "three"}]


# ── logs ───────────────────────────────────────────────────────────────────────────────────────────────────────


def entry(seq: int, severity: str = "Info") -> dict[str, Any]:
    return {"seq": seq, "timestamp": "t", "severity": severity, "tag": "gateway", "line": f"line {seq}"}


def snapshot(*numbers: int, boot: str = "b1") -> str:
    return json.dumps({"type": "logs.snapshot", "boot": boot, "entries": [entry(number) for number in numbers]})


def test_logs_prints_the_snapshot(server: WebServer, lemonbus: Ends, monkeypatch: pytest.MonkeyPatch) -> None:
    heard: list[Any] = []

    def talk(peer: simple_websocket.Server) -> None:
        heard.append(json.loads(peer.receive(timeout=10)))
        peer.send(snapshot(1, 2, 3))
        peer.receive(timeout=10)

    server.talk = talk
    monkeypatch.setenv("LEMONBUS_API_KEY", "k")
    assert lemonbus("logs", "--model", "A", "--request", "r", "--level", "error") == (0, "line 1\nline 2\nline 3\n", "")
    assert heard == [{"type": "logs.subscribe", "after_seq": None, "model": "A", "request_id": "r", "level": "error"}]
    assert server.asked[-1][1] == "/logs/stream"
    assert server.asked[-1][3]["Authorization"] == "Bearer k"
    assert lemonbus("logs", "-n", "1")[1] == "line 3\n"
    assert lemonbus("logs", "-n", "0")[1] == ""
    assert [json.loads(line) for line in lemonbus("logs", "--json")[1].splitlines()] == [entry(1), entry(2), entry(3)]


def test_logs_refused(server: WebServer, lemonbus: Ends) -> None:
    def talk(peer: simple_websocket.Server) -> None:
        peer.receive(timeout=10)
        peer.send(json.dumps({"type": "error", "message": "no such level"}))
        peer.receive(timeout=10)

    server.talk = talk
    assert lemonbus("logs") == (1, "", "lemonbus: no such level\n")


def test_logs_follow_resumes_where_it_was_and_shows_gaps(server: WebServer) -> None:
    """Three lives: the first breaks off, the second goes on, the third is another boot, which starts anew."""
    lives: list[Callable[[simple_websocket.Server], object]] = [
        lambda peer: peer.send(snapshot(1, 2)),  # the snapshot that is printed first
        lambda peer: (
            peer.send(snapshot(2)),
            peer.send(json.dumps({"type": "logs.entry", "entry": entry(3)})),
        ),
        lambda peer: (
            peer.send(snapshot(3, 4)),
            peer.send(json.dumps({"type": "logs.entry", "entry": {**entry(5), "dropped": 7}})),
        ),
        lambda peer: (peer.send(snapshot(1, boot="b2")), peer.receive(timeout=20)),
    ]
    subscriptions: list[Any] = []

    def talk(peer: simple_websocket.Server) -> None:
        subscriptions.append(json.loads(peer.receive(timeout=10)))
        lives[len(subscriptions) - 1](peer)

    server.talk = talk
    with subprocess.Popen(
        [sys.executable, LAUNCH, "logs", "-f"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as follower:
        assert follower.stdout is not None
        try:
            lines = [follower.stdout.readline().rstrip() for _ in range(9)]
        finally:
            follower.kill()
    lost = "lemonbus: the connection to the server is lost; waiting for it"
    assert [line for line in lines if line.startswith("line")] == [f"line {number}" for number in (1, 2, 3, 4, 5, 1)]
    assert lines.count(lost) == 2
    assert lines.count("lemonbus: 7 lines were lost before the next one") == 1
    assert [(each["after_seq"], each.get("boot")) for each in subscriptions] == [
        (None, None),
        (2, "b1"),
        (3, "b1"),
        (5, "b1"),
    ]


# ── what a newcomer stumbles over ──────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("verb", ["load", "pull", "run"])
def test_a_missing_model_is_wrong_usage(lemonbus: Ends, verb: str) -> None:
    code, out, err = lemonbus(verb)
    assert (code, out) == (2, "")
    assert "Missing argument 'MODEL'" in err


def test_the_version_can_be_asked_for_as_everywhere(lemonbus: Ends) -> None:
    assert lemonbus("--version") == lemonbus("version")


def test_a_key_that_no_header_can_carry(lemonbus: Ends, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LEMONBUS_API_KEY", "sésame")
    for verb in ("status", "logs"):
        code, _, err = lemonbus(verb)
        assert code == 2
        assert "ASCII" in err


@pytest.mark.parametrize("words", [["run", "A", "hi"], ["load", "A"]])
def test_a_model_that_is_not_there_is_downloaded_first(server: WebServer, lemonbus: Ends, words: list[str]) -> None:
    server.replies["GET", "/v1/models?show_all=true"] = Reply({"data": [{"id": "A", "downloaded": False}]})
    server.replies["POST", "/v1/pull"] = Reply(pieces=[progress(50), COMPLETE])
    server.replies["POST", "/v1/load"] = Reply({"message": "Loaded model: A"})
    server.replies[CHAT] = Reply(pieces=[chunk(content="yes"), end(), DONE])
    code, _, err = lemonbus(*words)
    assert code == 0
    assert "Downloading A first" in err
    assert [path for _, path, _, _ in server.asked][1] == "/v1/pull"
