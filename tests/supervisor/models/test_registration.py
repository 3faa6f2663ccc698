"""What may be registered, and what may not."""

from __future__ import annotations

import pytest
from hypothesis import strategies as st

from protocol.failures import Code, LemonbusError
from protocol.messages.model_files import Registration
from supervisor.models import registration
from supervisor.models.catalogues import catalogue
from supervisor.models.catalogues.catalogue import CatalogueEntry
from supervisor.models.files import ModelFiles
from tests.support.accepted_share import accepted_share

GOOD = Registration("unsloth/Phi-4-mini-instruct-GGUF:Q4_K_M", "llamacpp")


def refused(name: str, given_text: Registration) -> str:
    with pytest.raises(LemonbusError) as raised:
        registration.entry_from_registration(name, given_text)
    failure = raised.value.failure
    assert failure.code is Code.INVALID_REQUEST
    failure.message.encode()
    return failure.param


@pytest.mark.parametrize(
    "name",
    [
        "Phi",
        "user.",
        "users.Phi",
        "extra.Phi",
        "user.a/b",
        "user.../b",
        "user...",
        "user..",
        "user.a\\b",
        "user.a\0b",
        "user.a\nb",
        "user.a\x7f",
        "user.\u202eb",
        "user.\ud800",
        "user. a",
        "user.a ",
        "user.user.a",
        "user.a:latest",
        "user." + "a" * 300,
        "",
    ],
)
def test_a_bad_name(name: str) -> None:
    assert refused(name, GOOD) == "model_name"


@pytest.mark.parametrize("name", ["user.Phi-4-Mini-GGUF", "user.a", "user.größe", "user.a b", "user.a:7b", "user.a.b"])
def test_a_good_name(name: str) -> None:
    assert registration.entry_from_registration(name, GOOD).name == name


@accepted_share(0.1, bare=st.text(max_size=20) | st.from_regex(r"[\w. -]{1,9}", fullmatch=True))
def test_a_name_cannot_break_the_file(bare: str) -> bool:
    try:
        registration.check_name(f"user.{bare}")
    except LemonbusError:
        return False
    assert bare.isprintable()
    assert not {"/", "\\", "\0"} & set(bare)
    assert bare.strip(".")
    return True


@pytest.mark.parametrize(
    ("given_text", "param"),
    [
        (Registration("o/r", "abacus"), "recipe"),
        (Registration("o/r", ""), "recipe"),
        (Registration("o/r", "Llamacpp"), "recipe"),
        (Registration("noslash", "llamacpp"), "checkpoint"),
        (Registration("", "llamacpp"), "checkpoint"),
        (Registration("o/r/s", "llamacpp"), "checkpoint"),
        (Registration("../r", "llamacpp"), "checkpoint"),
        (Registration("/etc/passwd", "llamacpp"), "checkpoint"),
        (Registration("o/r:../x.gguf", "llamacpp"), "checkpoint"),
        (Registration("o/r:a\nb", "llamacpp"), "checkpoint"),
        (Registration("wheel:a==1#b/c.gguf", "llamacpp"), "checkpoint"),
        (Registration("flm:a/b", "llamacpp"), "checkpoint"),
        (Registration("o/r", "flm"), "checkpoint"),
        (Registration("a b", "flm"), "checkpoint"),
        (Registration("o/r", "llamacpp", mmproj="../m.gguf"), "mmproj"),
        (Registration("o/r", "llamacpp", mmproj="/m.gguf"), "mmproj"),
        (Registration("o/r", "whispercpp", mmproj="m.gguf"), "mmproj"),
        (Registration("llama3.2:1b", "flm", mmproj="m.gguf"), "mmproj"),
    ],
)
def test_a_bad_registration(given_text: Registration, param: str) -> None:
    assert refused("user.x", given_text) == param


@pytest.mark.parametrize(
    ("checkpoint", "recipe", "labels"),
    [
        ("o/r:ggml-small.bin", "whispercpp", ["custom", "transcription"]),
        ("o/r:x.safetensors", "sd-cpp", ["custom", "image"]),
        ("qwen3:4b", "flm", ["custom"]),
    ],
)
def test_a_recipe_adds_its_label(checkpoint: str, recipe: str, labels: list[str]) -> None:
    assert registration.entry_from_registration("user.x", Registration(checkpoint, recipe)).labels == labels


def test_switches_become_labels() -> None:
    labels = ["reasoning", "vision", "embeddings", "reranking"]
    found = registration.entry_from_registration(
        "user.x", Registration("o/r:Q4_0", "llamacpp", "mmproj-F16.gguf", labels)
    )
    assert found.labels == ["custom", *labels]
    assert found.sources[0].mmproj == "mmproj-F16.gguf"
    assert found.suggested
    assert "vision" in registration.entry_from_registration("user.x", Registration("o/r", "llamacpp", "m.gguf")).labels


PARTS = {
    "main": "o/r:m.gguf",
    "text_encoder": "o/t:t.gguf",
    "vae": "https://huggingface.co/o/v/blob/main/a/v.safetensors",
}


def test_a_model_may_be_made_of_several_files() -> None:
    found = registration.entry_from_registration("user.x", Registration("", "sd-cpp", checkpoints=PARTS))
    named = {"main": "o/r:m.gguf", "text_encoder": "o/t:t.gguf", "vae": "o/v:a/v.safetensors"}
    assert found.checkpoints == named
    assert {part: each.checkpoint for part, each in found.sources[0].parts.items()} == {
        part: checkpoint for part, checkpoint in named.items() if part != "main"
    }
    item = registration.downloaded_item(found, ModelFiles("/hub/m.gguf", "", 5, 0, {"vae": "/hub/v"}))
    assert item["checkpoints"] == named
    assert "checkpoint" not in item
    again = catalogue.entry("user.x", item)
    assert (again.checkpoint, again.checkpoints, again.sources) == (found.checkpoint, named, found.sources)


@pytest.mark.parametrize(
    ("recipe", "checkpoints"),
    [
        ("llamacpp", {"vae": "o/v:v.gguf"}),
        ("sd-cpp", {"vae": "o/v"}),
        ("sd-cpp", {"vae": "o/v:*"}),
        ("sd-cpp", {"vae": "../v:v.gguf"}),
        ("sd-cpp", {"vae": "wheel:a==1#v.gguf"}),
        ("sd-cpp", {"decoder": "o/v:v.gguf"}),
    ],
)
def test_a_bad_part(recipe: str, checkpoints: dict[str, str]) -> None:
    assert refused("user.x", Registration("o/r:m.gguf", recipe, checkpoints=checkpoints)) in (
        "checkpoints",
        "checkpoint",
    )


def test_flms_checkpoints_have_no_owner() -> None:
    found = registration.entry_from_registration("user.x", Registration("llama3.2:1b", "flm"))
    assert found.checkpoint == "llama3.2:1b"
    assert found.sources[0].checkpoint == "flm:llama3.2:1b"


@pytest.mark.parametrize(
    ("recipe", "path", "given_text"),
    [
        ("llamacpp", "/m/x.GGUF", ""),
        ("llamacpp", "/m/x.bin", "not the GGUF"),
        ("llamacpp", "/m/folder", "not the GGUF"),
        ("whispercpp", "/m/ggml-tiny.bin", ""),
        ("whispercpp", "/m/x.safetensors", "not the ggml"),
        ("oga-cpu", "/m/snapshots/abc", ""),
        ("ryzenai-llm", "/m/x.gguf", "not the ONNX"),
        ("sd-cpp", "/m/x.safetensors", ""),
        ("flm", "llama3.2:1b", ""),
    ],
)
def test_a_recipe_must_be_able_to_load_the_downloaded_file(recipe: str, path: str, given_text: str) -> None:
    found = registration.unloadable_reason(recipe, path)
    assert given_text in found
    assert bool(found) == bool(given_text)


def test_an_entry_keeps_its_format() -> None:
    found: CatalogueEntry = registration.entry_from_registration("user.x", GOOD)
    assert (found.checkpoint, found.recipe, found.type.value) == (GOOD.checkpoint, "llamacpp", "llm")


@pytest.mark.parametrize(
    ("given", "checkpoint", "mmproj"),
    [
        ({"main": "o/r:Q4_0"}, "o/r:Q4_0", ""),
        ({"main": "https://huggingface.co/o/r/blob/main/m.gguf"}, "o/r:m.gguf", ""),
        ({"main": "o/r:Q4_0", "mmproj": "o/r:mmproj.gguf"}, "o/r:Q4_0", "mmproj.gguf"),
        ({"main": "o/r:Q4_0", "mmproj": "mmproj.gguf"}, "o/r:Q4_0", "mmproj.gguf"),
    ],
)
def test_checkpoints_is_the_other_form_of_checkpoint(given: dict[str, str], checkpoint: str, mmproj: str) -> None:
    found = registration.entry_from_registration("user.x", Registration("", "llamacpp", checkpoints=given))
    assert (found.checkpoint, found.sources[0].mmproj) == (checkpoint, mmproj)


@pytest.mark.parametrize(
    "given",
    [
        Registration("", "llamacpp", checkpoints={"mmproj": "o/r:m.gguf"}),
        Registration("o/r:Q8_0", "llamacpp", checkpoints={"main": "o/r:Q4_0"}),
        Registration("", "llamacpp", checkpoints={"main": "o/r:Q4_0", "vae": "o/r:v"}),
        Registration("", "llamacpp", checkpoints={"main": "o/r:Q4_0", "mmproj": "o/other:m.gguf"}),
        Registration("", "llamacpp", "a.gguf", checkpoints={"main": "o/r:Q4_0", "mmproj": "b.gguf"}),
    ],
)
def test_checkpoints_that_do_not_fit(given: Registration) -> None:
    assert refused("user.x", given) == "checkpoints"


def test_a_whisper_models_file_for_the_npu_is_accepted_and_not_used() -> None:
    given = {"main": "o/r:ggml-small.bin", "npu_cache": "amd/whisper:small.rai"}
    found = registration.entry_from_registration("user.x", Registration("", "whispercpp", checkpoints=given))
    assert found.checkpoint == "o/r:ggml-small.bin"


def test_load_options_are_part_of_a_registration() -> None:
    options = {"ctx_size": 2048, "llamacpp_args": "--no-mmap"}
    found = registration.entry_from_registration("user.x", Registration("o/r", "llamacpp", options=options))
    assert found.options == options


@pytest.mark.parametrize(
    "options", [{"ctx_size": "much"}, {"steps": 4}, {"llamacpp_args": "--port 1"}, {"llamacpp_args": "--lora /etc/x"}]
)
def test_options_are_checked_as_those_of_a_load(options: dict[str, int | str]) -> None:
    assert refused("user.x", Registration("o/r", "llamacpp", options=options)) in options
