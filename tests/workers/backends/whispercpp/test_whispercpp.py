"""The whispercpp recipe: arguments, command line, environment, requests."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import strategies as st

from protocol.config.settings import Settings
from protocol.failures import Code, LemonbusError
from protocol.models import installations
from protocol.models.installations import InstallationRecord
from protocol.models.recipes import ModelSpec
from protocol.wire import form_data
from protocol.wire.form_data import FormPart
from tests.support.accepted_share import accepted_share
from workers.backends.flag_table import FlagError
from workers.backends.registry import ARGUMENT_CHECKS
from workers.backends.whispercpp.backend import WhisperCppBackend
from workers.backends.whispercpp.flags import FLAGS, parse_form_fields

FORM = form_data.encode([FormPart("model", b"m"), FormPart("language", b"de"), FormPart("file", b"fLaC", "a.flac")])


def made(
    backend: str = "cpu", home: str = "/home", key: str = "", kind: str = "audio", **options: Any
) -> WhisperCppBackend:
    spec = ModelSpec("user.x", "x", "whispercpp", backend, kind, "/models/x.bin", options=options)
    return WhisperCppBackend(spec, Settings(cache_dir=home, api_key=key))


def pair(command: list[str], flag: str) -> str:
    return command[command.index(flag) + 1]


def test_the_command_line() -> None:
    command = made(threads=3, whispercpp_args="--convert -bs 5 -l de").command(5)
    assert command[1:3] == ["-m", "workers.engine_servers.whisper_server"]
    assert command[3:5] == ["-m", "/models/x.bin"]
    assert (pair(command, "--host"), pair(command, "--port"), pair(command, "-t")) == ("127.0.0.1", "5", "3")
    assert command.index("auto") < command.index("--convert"), "the user's word counts more"
    assert "-t" not in made().command(5)
    assert (made().slots, made().program, made().alias) == (1, "whisper-server", "user.x")


@pytest.mark.parametrize("flag", ["-m", "--model", "--port", "--host", "--port=1", "--inference_path"])
def test_flags_that_lemonbus_sets(flag: str) -> None:
    for question in (
        lambda: made(whispercpp_args=f"{flag} 1"),
        lambda: ARGUMENT_CHECKS["whispercpp_args"](f"{flag} 1"),
    ):
        with pytest.raises(LemonbusError) as raised:
            question()
        assert (raised.value.failure.code, raised.value.failure.param) == (Code.INVALID_REQUEST, "whispercpp_args")
        assert flag.partition("=")[0].replace("_", "-") in raised.value.failure.message


@pytest.mark.parametrize(
    ("args", "problem"),
    [
        ("--vad", "unknown argument --vad"),
        ("-bs", "-bs needs a value"),
        ("-bs 9", "from -1 to 8"),
        ("-l xx", "a language such as en"),
        ("-et nan", "cannot be nan"),
        ("-t none", "-t cannot be none"),
    ],
)
def test_our_server_is_strict_before_it_is_started(args: str, problem: str) -> None:
    with pytest.raises(LemonbusError) as raised:
        made(whispercpp_args=args).check()
    assert raised.value.failure.param == "whispercpp_args"
    assert problem in raised.value.failure.message
    with contextlib.suppress(FlagError):
        made(backend="system", whispercpp_args=args)  # lemonbus does not know the flags of other programs


SWITCHES = st.sampled_from(FLAGS.names(lambda flag: flag.target and flag.kind is None))
WORDS = st.sampled_from(FLAGS.names(lambda flag: flag.target)) | st.sampled_from(["1", "0.5"]) | st.text(max_size=4)


@accepted_share(0.1, words=st.lists(SWITCHES, min_size=1, max_size=3) | st.lists(WORDS, max_size=3))
def test_any_command_line_is_read_or_refused(words: list[str]) -> bool:
    try:
        return bool(FLAGS.parse(words))
    except FlagError:
        return False


@pytest.mark.parametrize(
    ("fields", "wanted"),
    [
        ({}, {}),
        ({"unknown": "x", "language": "DE", "translate": "true"}, {"<language>": "de", "translate": True}),
        ({"temperature": "0.4", "temperature_inc": "1e-9"}, {"temperature": 0.4, "temperature_inc": 0.05}),
        ({"temperature_inc": "0", "suppress_non_speech": "1"}, {"temperature_inc": 0.0, "suppress_nst": True}),
    ],
)
def test_request_options(fields: dict[str, str], wanted: dict[str, Any]) -> None:
    assert parse_form_fields(fields) == wanted


@pytest.mark.parametrize(
    ("field", "text"),
    [("language", "klingon"), ("temperature", "2"), ("temperature", "inf"), ("translate", "maybe"), ("best_of", "x")],
)
def test_invalid_request_options(field: str, text: str) -> None:
    with pytest.raises(FlagError, match=f"{field} cannot be {text}"):
        parse_form_fields({field: text})


@pytest.mark.parametrize(
    ("words", "language", "why"),
    [
        (51_864, "de", "does not know german; it only knows English"),
        (51_864, "en", ""),
        (51_864, "auto", ""),
        (51_865, "de", ""),
        (51_865, "yue", "does not know cantonese; it is older"),
        (51_866, "yue", ""),
    ],
)
def test_a_language_that_the_model_does_not_know(tmp_path: Path, words: int, language: str, why: str) -> None:
    (tmp_path / "x.bin").write_bytes(b"lmgg" + words.to_bytes(4, "little"))
    spec = ModelSpec("user.x", "x", "whispercpp", "system", "audio", str(tmp_path / "x.bin"))
    form = form_data.encode([FormPart("language", language.encode()), FormPart("file", b"fLaC", "a.flac")])
    if not why:
        WhisperCppBackend(spec, Settings()).request("audio/transcriptions", "", form, stream=False)
        return
    with pytest.raises(LemonbusError, match=why) as raised:
        WhisperCppBackend(spec, Settings()).request("audio/transcriptions", "", form, stream=False)
    assert raised.value.failure.param == "language"


def test_the_environment() -> None:
    inherited = {"PATH": "/bin", "WHISPER_API_KEY": "k", "LEMONBUS_API_KEY": "k", "HF_TOKEN": "t", "PYTHONPATH": "p"}
    always = {"PATH": "/dev/null", "CUDA_DEVICE_ORDER": "PCI_BUS_ID", "GOMP_SPINCOUNT": "300", "GGML_NO_BACKTRACE": "1"}
    ours = made()
    assert ours.environment(inherited) == {**always, "PYTHONPATH": "p", "WHISPER_API_KEY": ours.key}
    assert "s" not in made(key="s").environment(inherited).values()
    assert made(backend="system", key="s").environment(inherited) == always


def put(home: Path, backend: str, program: str = "") -> Path:
    folder = installations.backend_folder(str(home), "whispercpp", backend) / "1.2-abc"
    (folder / installations.FILES_FOLDER).mkdir(parents=True)
    record = InstallationRecord("whispercpp", backend, "1.2", "abc", program)
    (folder / installations.RECORD_FILE).write_bytes(msgspec.json.encode(record))
    return folder


def test_an_installation_from_before_the_decoder_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: None)
    folder = put(tmp_path, "cpu")
    with pytest.raises(LemonbusError, match=r"lacks the package av.*`lemonbus backends install whispercpp:cpu`"):
        made(home=str(tmp_path)).check()
    (folder / installations.SITE_FOLDER / "av").mkdir(parents=True)
    made(home=str(tmp_path)).check()


def test_what_was_installed(tmp_path: Path) -> None:
    with pytest.raises(LemonbusError, match="`lemonbus backends install whispercpp:vulkan` does that"):
        made(backend="vulkan", home=str(tmp_path)).check()
    program = put(tmp_path, "vulkan", "whisper-server") / installations.FILES_FOLDER / "whisper-server"
    program.touch(mode=0o755)
    backend = made(backend="vulkan", home=str(tmp_path))
    backend.check()
    assert backend.command(5)[0] == str(program)
    assert backend.environment({"PYTHONPATH": "p"})["LD_LIBRARY_PATH"] == str(program.parent)
    assert "PYTHONPATH" not in backend.environment({"PYTHONPATH": "p"})
    assert backend.facts(b"").version == "1.2"
    folder = put(tmp_path, "cpu")
    assert made(home=str(tmp_path)).environment({"PYTHONPATH": "p"})["PYTHONPATH"] == f"p{os.pathsep}{folder / 'site'}"


def test_a_missing_executable(tmp_path: Path) -> None:
    spec = ModelSpec("x", "x", "whispercpp", "system", "audio", "/models/x.bin")
    with pytest.raises(LemonbusError) as raised:
        WhisperCppBackend(spec, Settings(whisper_server=str(tmp_path / "no-such-server"))).check()
    assert "no-such-server was not found" in raised.value.failure.message
    assert str(tmp_path) not in raised.value.failure.message


@pytest.mark.parametrize("endpoint", ["audio/transcriptions", "audio/translations"])
def test_requests(endpoint: str) -> None:
    request = made().request(endpoint, "", FORM, stream=False)
    assert (request.method, request.path, request.streamed) == ("POST", "/inference", False)
    boundary = form_data.boundary_from_content_type(request.content_type)
    raised = {part.name: part.data for part in form_data.parse(boundary, request.body)}
    assert raised["response_format"] == b"verbose_json"
    assert (raised["language"], raised["file"]) == (b"de", b"fLaC")
    assert raised.get("translate") == (b"true" if endpoint == "audio/translations" else None)


@pytest.mark.parametrize(
    ("kind", "endpoint", "body", "code"),
    [
        ("audio", "chat/completions", FORM, Code.UNSUPPORTED),
        ("llm", "audio/transcriptions", FORM, Code.UNSUPPORTED),
        ("audio", "audio/transcriptions", b"{}", Code.INVALID_REQUEST),
        ("audio", "audio/transcriptions", form_data.encode([FormPart("best_of", b"x")]), Code.INVALID_REQUEST),
    ],
    ids=["a chat with a recording", "a recording for a chat model", "JSON", "a form without a file"],
)
def test_invalid_requests(kind: str, endpoint: str, body: bytes, code: Code) -> None:
    with pytest.raises(LemonbusError) as raised:
        made(kind=kind).request(endpoint, "", body, stream=False)
    assert raised.value.failure.code == code


def test_whether_it_is_busy() -> None:
    backend = made()
    assert b"file" not in backend.busy().body
    assert backend.busy_status == 400
    assert backend.processing(b"Invalid request") == 0


@pytest.mark.parametrize(
    ("line", "level"), [(b"whisper_init_state: kv", "debug"), (b"error: failed to read", "warning")]
)
def test_what_it_prints(line: bytes, level: str) -> None:
    assert made().parse(line) == (level, line.decode())


def test_a_program_of_the_users_gets_no_duration() -> None:
    body = form_data.encode([FormPart("duration", b"1000"), FormPart("file", b"fLaC", "a.flac")])
    assert made().request("audio/transcriptions", "", body, stream=False)
    with pytest.raises(LemonbusError, match="`duration`: whisper-server would continue") as raised:
        made("system").request("audio/transcriptions", "", body, stream=False)
    assert raised.value.failure.param == "duration"
