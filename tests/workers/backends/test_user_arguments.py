"""Which engine arguments a client may send with a load, for every recipe that takes some."""

from __future__ import annotations

import re

import pytest

from protocol.failures import Code, LemonbusError
from workers.backends.flag_table import FileNames, FlagTable, Setter
from workers.backends.registry import ARGUMENT_CHECKS, DESCRIPTORS, FLAGS
from workers.backends.user_arguments import check_argument_numbers, check_client_arguments, is_below

WITH_ARGUMENTS = [
    (option.name, FLAGS[descriptor.recipe])
    for descriptor in DESCRIPTORS.values()
    for option in descriptor.options
    if option.kind == "args"
]
ALLOWED = ["/models/extra", "/hub"]
ADMINISTRATORS = {
    "llamacpp_args": [
        *(
            "--log-file /tmp/x",
            "--tools all",
            "--rpc 10.0.0.1:1",
            "--media-path /",
            "--slot-save-path /etc",
            "--path /",
        ),
        *("--lookup-cache-dynamic /tmp/x", "-lcd /tmp/x", "--mcp-config x", "--models-dir /", "-v", "-lv 9", "--props"),
        *("--api-key-file /etc/passwd", "--ssl-key-file x", "--cors-origins *", "--ui-config-file /etc/passwd"),
        *("--control-vector /x", "--chat-template '{% for i in range(9) %}x{% endfor %}'", "--cache-ram -1", "plain"),
    ],
    "sdcpp_args": ["--lora-model-dir /", "--embd-dir /", "-v", "--output /tmp/x", "--serve-html-path /", "plain"],
    "whispercpp_args": ["--public /", "--tmp-dir /etc", "--print-realtime", "--request-path x", "plain"],
    "flm_args": ["--cors 1", "--version", "--pm turbo", "-s5"],
}


def check(option: str, flags: FlagTable, args: str, directories: list[str]) -> None:
    check_client_arguments(option, flags, ARGUMENT_CHECKS[option](args), directories)


def refused(option: str, flags: FlagTable, args: str, directories: list[str]) -> str:
    with pytest.raises(LemonbusError) as raised:
        check(option, flags, args, directories)
    assert (raised.value.failure.code, raised.value.failure.param) == (Code.INVALID_REQUEST, option)
    return raised.value.failure.message


@pytest.mark.parametrize(
    ("option", "args"), [(option, args) for option in ADMINISTRATORS for args in ADMINISTRATORS[option]]
)
def test_what_only_the_administrator_may_set(option: str, args: str) -> None:
    flags = next(flags for name, flags in WITH_ARGUMENTS if name == option)
    assert args.split(maxsplit=1)[0] in refused(option, flags, args, ALLOWED)


def test_every_recipe_with_arguments_has_its_list() -> None:
    assert {option for option, _ in WITH_ARGUMENTS} == set(ADMINISTRATORS)
    for option, flags in WITH_ARGUMENTS:
        names = flags.names()
        assert len(set(names)) == len(names), option
        assert flags.names(lambda flag: flag.setter is Setter.CLIENT), option
        assert flags.forbidden, option
        for flag in flags.flags:
            assert flag.kind is None or re.compile(flag.kind.pattern).pattern


@pytest.mark.parametrize(
    ("option", "args", "expected"),
    [
        (
            "llamacpp_args",
            "--n_gpu_layers=5",
            "--n-gpu-layers (the same as -ngl): lemonbus sets it from the option gpu_layers",
        ),
        ("llamacpp_args", "-mu http://x", "-mu (the same as -m): lemonbus sets it"),
        ("sdcpp_args", "-W 64", "-W: lemonbus sets it from the option width"),
        ("whispercpp_args", "--port 1", "--port: lemonbus sets it"),
    ],
)
def test_a_flag_that_lemonbus_sets_is_named_with_its_option(option: str, args: str, expected: str) -> None:
    with pytest.raises(LemonbusError) as raised:
        ARGUMENT_CHECKS[option](args)
    assert raised.value.failure.message == f"{option} must not contain {expected}"


@pytest.mark.parametrize(("option", "flags"), WITH_ARGUMENTS)
def test_files_only_below_the_allowed_directories(option: str, flags: FlagTable) -> None:
    clients = [flag for flag in flags.flags if flag.setter is Setter.CLIENT]
    naming = [(flag, flag.kind.files) for flag in clients if flag.kind and flag.kind.files is not FileNames.NONE]
    assert naming or option == "flm_args"
    for flag, files in naming:
        name = flag.names.split()[0]
        scale = ":0.5" if files is FileNames.SCALED else ""
        good = f"{name} /models/extra/a.gguf{scale}"
        check_client_arguments(option, flags, good.split(), ALLOWED)
        for path in ("/etc/passwd", "/models/extra", "/models/extra/../../etc/passwd", "a.gguf", "/models/extras/a"):
            expected = refused(option, flags, f"{name} {path}{scale}", ALLOWED)
            assert "engine_file_dirs" in expected
            assert path not in expected
        refused(option, flags, f"{name} /models/extra/a.gguf{scale}", [])
        refused(option, flags, name, ALLOWED)


@pytest.mark.parametrize("value", ["/hub/a,/etc/passwd", "/etc/passwd,/hub/a", "/hub/a,", ","])
def test_each_of_several_files_counts(value: str) -> None:
    flags = FLAGS["llamacpp"]
    refused("llamacpp_args", flags, f"--lora {value}", ALLOWED)
    check_client_arguments("llamacpp_args", flags, ["--lora", "/hub/a,/models/extra/b"], ALLOWED)


@pytest.mark.parametrize(
    "args",
    [
        "-np 2 --no-mmap -fa on --cache_type_k q8_0 -b 512",
        "--chat-template chatml --temp 0.7 --seed -1",
        "--draft-max 8 --draft-min 1 --spec-type ngram-simple --rope-scaling yarn --rope-scale 4",
        "--override-kv tokenizer.ggml.add_bos_token=bool:false --n-cpu-moe 3 --numa distribute",
        "--grammar 'root ::= \"a\"'",
    ],
)
def test_what_a_client_may_send(args: str) -> None:
    words = ARGUMENT_CHECKS["llamacpp_args"](args)
    check_client_arguments("llamacpp_args", FLAGS["llamacpp"], words, [])


@pytest.mark.parametrize(
    ("option", "args"),
    [
        ("llamacpp_args", "--threads 999999999"),
        ("llamacpp_args", "--log-file x -tb 1025"),
        ("llamacpp_args", "--threads_http 999999999"),
        ("llamacpp_args", f"--draft-max 1{'0' * 5000}"),
        ("llamacpp_args", "--batch-size 65537"),
        ("whispercpp_args", "-p 99999"),
        ("sdcpp_args", "-t -99999"),
    ],
)
def test_a_number_that_is_too_large_is_refused(option: str, args: str) -> None:
    flags = next(flags for name, flags in WITH_ARGUMENTS if name == option)
    with pytest.raises(LemonbusError, match="the largest number is") as caught:
        check_argument_numbers(option, flags, args.split())
    assert (caught.value.failure.code, caught.value.failure.param) == (Code.INVALID_REQUEST, option)


def test_numbers_that_are_large_enough() -> None:
    words = ["-t", "-1", "--threads-http", "64", "--poll", "0", "--seed", "999999999", "--log-file", "999999999"]
    check_argument_numbers("llamacpp_args", FLAGS["llamacpp"], words)


def test_a_directory_is_not_below_itself() -> None:
    assert is_below("/a/b/c", ["/a/b"])
    assert is_below("/a/b/c", ["/a/b/"])
    assert not is_below("/a/b", ["/a/b"])
    assert not is_below("/a/bc", ["/a/b"])
    assert not is_below("/a", ["", "relative"])
