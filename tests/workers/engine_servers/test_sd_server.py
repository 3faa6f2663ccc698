"""Our sd-server as a process: over a stand-in for its package, and over the real package if it is installed."""

from __future__ import annotations

import base64
import http.client
import importlib.util
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from protocol.wire import form_data
from protocol.wire.form_data import FormPart
from tests.support import processes
from tests.support.images import pictures, png
from tests.support.ports import free_port
from tests.support.waiting import wait_for
from workers.backends.sdcpp.flags import KEY, PACKAGE
from workers.backends.sdcpp.image_request import engine_body, engine_form

ROOT = Path(__file__).parents[3]
FAKE_PACKAGE = ROOT / "tests" / "fake_engines" / "sd_package"
MODULE = [sys.executable, "-m", "workers.engine_servers.sd_server"]
GENERATIONS, EDITS = "/v1/images/generations", "/v1/images/edits"
USUAL = ["-m", "/m/x.gguf", "--steps", "4", "-W", "64", "-H", "64"]
PNG, JPEG = b"\x89PNG", b"\xff\xd8"


class SdServerProcess:
    """One running sd-server."""

    def __init__(self, port: int, process: subprocess.Popen[bytes]) -> None:
        self.port, self.process = port, process

    def ask(
        self, method: str, path: str, body: bytes | None = None, key: str = "", kind: str = "application/json"
    ) -> tuple[int, Any]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        try:
            head = {"Content-Type": kind, **({"Authorization": f"Bearer {key}"} if key else {})}
            connection.request(method, path, body, head)
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read())
        finally:
            connection.close()

    def draw(self, key: str = "", **body: Any) -> tuple[int, Any]:
        return self.ask("POST", GENERATIONS, engine_body(json.dumps(body).encode()), key)

    def edit(self, *files: FormPart, **body: Any) -> tuple[int, Any]:
        form = engine_form(form_data.encode([FormPart(form_data.JSON_FIELDS_PART, json.dumps(body).encode()), *files]))
        return self.ask(
            "POST", EDITS, form, kind=f"{form_data.MEDIA_TYPE}; boundary={form_data.boundary_from_body(form)}"
        )

    def ready(self) -> bool:
        assert self.process.poll() is None, "it ended"
        try:
            return self.ask("GET", "/v1/models")[0] in (200, 401)
        except OSError:
            return False


def environment(**more: str) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(FAKE_PACKAGE)]), **more}


@contextmanager
def serving(words: list[str], environ: dict[str, str]) -> Iterator[SdServerProcess]:
    port = free_port()
    with subprocess.Popen(
        [*MODULE, "--listen-ip", "127.0.0.1", "--listen-port", str(port), *words],
        env=environ,
        stdin=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    ) as process:
        try:
            direct = SdServerProcess(port, process)
            wait_for(direct.ready, "sd-server listens", 30)
            yield direct
        finally:
            process.kill()


@pytest.fixture(scope="module")
def server() -> Iterator[SdServerProcess]:
    with serving([*USUAL, "-s", "5"], environment()) as direct:
        yield direct


def test_pictures_are_as_they_were_asked_for(server: SdServerProcess) -> None:
    status, answer = server.draw(prompt="a cat", size="72x48", n=2, seed=1, steps=3)
    assert status == 200
    assert set(answer) == {"created", "data", "output_format"}
    first, second = pictures(answer)
    assert (first.width, first.height) == (72, 48)
    assert first.pixels != second.pixels
    assert pictures(server.draw(prompt="a cat", size="72x48", seed=2, steps=3)[1]) == [second]
    assert pictures(server.draw(prompt="a cat", size="72x48", seed=1, steps=4)[1]) != [first]


def test_unset_parameters_come_from_the_command_line(server: SdServerProcess) -> None:
    body = json.dumps({"prompt": "a cat"}).encode()
    (picture,) = pictures(server.ask("POST", GENERATIONS, body)[1])
    assert (picture.width, picture.height) == (64, 64)
    assert pictures(server.draw(prompt="a cat", seed=5)[1]) == [picture]


@pytest.mark.parametrize(
    ("body", "status", "words"),
    [
        (b"", 400, "JSON"),
        (b"[]", 400, "JSON"),
        (b"[" * 100_000, 400, "JSON"),
        (b"{}", 400, "prompt required"),
        (b'{"prompt":"a","n":"2"}', 400, "n must be"),
        (b'{"prompt":"a","output_format":"gif"}', 400, "output_format"),
        (b'{"prompt":"a<sd_cpp_extra_args>{</sd_cpp_extra_args>"}', 400, "extra_args"),
        (
            b'{"prompt":"a<sd_cpp_extra_args>{\\"sample_params\\":{\\"scheduler\\":\\"x\\"}}</sd_cpp_extra_args>"}',
            400,
            "scheduler",
        ),
        (b'{"prompt":"nothing"}', 500, "no results"),
    ],
)
def test_errors(server: SdServerProcess, body: bytes, status: int, words: str) -> None:
    found, answer = server.ask("POST", GENERATIONS, body)
    assert found == status
    assert words in answer["error"]["message"]
    assert answer["error"]["code"] == status


def test_pictures_from_pictures(server: SdServerProcess) -> None:
    def drawn(*files: FormPart, **body: Any) -> Any:
        status, answer = server.edit(*files, prompt="a hat", seed=1, **body)
        assert status == 200, answer
        return pictures(answer)[0]

    cat, dog = FormPart("image", png(40, 24, 10), "cat.png"), FormPart("image", png(9, 9, 20), "dog.png")
    mask = FormPart("mask", png(8, 8, 255), "mask.png")
    alone = drawn(cat)
    assert (alone.width, alone.height) == (40, 24), "as large as what it is made from"
    assert drawn(cat) == alone
    others = [drawn(dog, size="40x24"), drawn(cat, dog), drawn(cat, mask)]
    assert len({alone.pixels, *(other.pixels for other in others)}) == 4
    assert (drawn(cat, size="64x72").width, drawn(cat, dog).height) == (64, 24)


@pytest.mark.parametrize(
    ("kind", "body", "words"),
    [
        ("application/json", b"{}", "the form cannot be read"),
        (f"{form_data.MEDIA_TYPE}; boundary=x", b"--y", "the form cannot be read"),
        (
            f"{form_data.MEDIA_TYPE}; boundary=x",
            form_data.encode([FormPart("prompt", b"a")], "x"),
            "at least one image",
        ),
        (
            f"{form_data.MEDIA_TYPE}; boundary=x",
            form_data.encode([FormPart("image[]", png(8, 8), "a")], "x"),
            "prompt required",
        ),
        (
            f"{form_data.MEDIA_TYPE}; boundary=x",
            form_data.encode([FormPart("prompt", b"a"), FormPart("image", png(8, 8)[:40], "a")], "x"),
            "a picture cannot be read",
        ),
        (
            f"{form_data.MEDIA_TYPE}; boundary=x",
            form_data.encode([FormPart("prompt", b"a"), FormPart("n", b"x"), FormPart("image", png(8, 8), "a")], "x"),
            "the form cannot be read",
        ),
    ],
)
def test_invalid_forms(server: SdServerProcess, kind: str, body: bytes, words: str) -> None:
    status, answer = server.ask("POST", EDITS, body, kind=kind)
    assert (status, words in answer["error"]["message"]) == (400, True), answer


def test_other_routes(server: SdServerProcess) -> None:
    assert server.ask("GET", "/health") == (200, {"status": "ok"})
    assert server.ask("GET", "/nope")[0] == server.ask("POST", "/v1/nope", b"{}")[0] == 404


def test_the_key_and_the_end() -> None:
    with serving(USUAL, environment(**{KEY: "secret"})) as direct:
        for key in ("", "Secret", "sécret"):
            assert direct.draw(prompt="a", key=key.encode().decode("latin-1"))[0] == 401
        assert direct.ask("GET", "/v1/models", key="secret")[0] == 200
        connection = http.client.HTTPConnection("127.0.0.1", direct.port, timeout=30)
        assert direct.draw(key="secret", prompt="a cat")[0] == 200
        body = engine_body(b'{"prompt":"slow"}')
        connection.request("POST", GENERATIONS, body, {"Authorization": "Bearer secret"})
        direct.process.send_signal(signal.SIGTERM)
        assert direct.process.wait(5) == 0
        connection.close()
        assert direct.process.stderr is not None
        log_text = direct.process.stderr.read().decode()
        assert "[INFO ] loading a model" in log_text
        assert "unasked output" not in log_text
        assert [line for line in log_text.splitlines() if "s/it" in line] == [
            f"  | {n}/4 - 0.10s/it" for n in range(1, 5)
        ]
        assert "Traceback" not in log_text


def test_it_ends_with_its_parent() -> None:
    port = free_port()
    words = [*MODULE, "--listen-port", str(port), *USUAL]
    script = f"import subprocess,sys; print(subprocess.Popen({words!r}).pid, flush=True); sys.stdin.read()"
    with subprocess.Popen(
        [sys.executable, "-c", script],
        env=environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    ) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        wait_for(SdServerProcess(port, parent).ready, "sd-server listens", 30)
        parent.kill()
        wait_for(lambda: not processes.alive(child), "it also ended")


@pytest.mark.parametrize(
    ("words", "code", "log_text"),
    [
        (["--nope"], 2, "unknown argument --nope"),
        (["-m"], 2, "-m needs a value"),
        (["--fa"], 2, "-m or --diffusion-model is missing"),
        ([*USUAL, "--steps", "many"], 2, "--steps cannot be many"),
        ([*USUAL, "--type", "x"], 2, "there is no wtype x"),
        (["-m", "/m/broken.gguf"], 1, "cannot load the model"),
    ],
)
def test_invalid_command_lines(words: list[str], code: int, log_text: str) -> None:
    ended = subprocess.run([*MODULE, *words], env=environment(), capture_output=True, timeout=20, check=False)
    assert ended.returncode == code
    assert log_text in ended.stderr.decode()
    assert "Traceback" not in ended.stderr.decode()


@pytest.mark.skipif(
    importlib.util.find_spec(PACKAGE) is None, reason=f"{PACKAGE} is not installed: see CONTRIBUTING.md"
)
def test_the_real_library_draws(tmp_path: Path) -> None:
    from tests.support.models import diffusion_gguf  # noqa: PLC0415 - it takes what only this test needs

    diffusion_gguf.write(tmp_path)
    words = ["--diffusion-model", str(tmp_path / "dit.gguf"), "--llm", str(tmp_path / "llm.gguf")]
    words += ["--tae", str(tmp_path / "tae.gguf"), "-t", "1", "--steps", "1", "-W", "64", "-H", "64"]
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    with serving(words, {**os.environ, "PYTHONPATH": path}) as direct:
        (first,) = pictures(direct.draw(prompt="a cat", seed=1)[1])
        assert (first.width, first.height) == (64, 64)
        assert pictures(direct.draw(prompt="a cat", seed=1)[1]) == [first]
        assert pictures(direct.draw(prompt="a cat", seed=2)[1]) != [first]
        assert pictures(direct.draw(prompt="a dog", seed=1)[1]) != [first]
        wide = direct.draw(prompt="a <lora:/etc/passwd:1> cat", size="80x64", n=2, cfg_scale=2.0, negative_prompt="x")
        assert [(each.width, each.height) for each in pictures(wide[1])] == [(80, 64)] * 2
        for form, magic in (("png", PNG), ("jpeg", JPEG)):
            answer = direct.draw(prompt="a", output_format=form)[1]
            assert base64.b64decode(answer["data"][0]["b64_json"]).startswith(magic)
        assert direct.draw(prompt="a", scheduler="no-such")[0] == 400
        edited = direct.edit(
            FormPart("image", png(64, 64), "a"), FormPart("mask", png(8, 8), "m"), prompt="a", strength=0.5, seed=1
        )
        assert (edited[0], pictures(edited[1])[0].width) == (200, 64)
