"""What is wrong in the sections of the configuration file is named with its line."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import strategies as st

from protocol.config.model_settings import (
    ModelSettings,
)
from protocol.config.sections import MAX_SECTIONS
from protocol.config.settings import Settings
from protocol.failures import LemonbusError
from tests.protocol.config.resolved_settings import PATH, complaint, resolved
from tests.support.accepted_share import accepted_share

M = "[models.x]\n"


P = f"{M}command = ['x', '{{port}}']\n"


U = f"{M}url = 'http://a/v1'\n"


R = "[remotes.gpu]\nurl = 'http://a/v1'\n[models.'gpu/x']\n"


TEXTS = "expected a text without control characters"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("models = 3", '1: models: expected sections [models."NAME"], got 3'),
        ("defaults = []", "1: defaults: expected sections [defaults.RECIPE], got []"),
        ("groups = 'x'", "1: groups: expected sections [groups.NAME], got 'x'"),
        ("[models]\nx = 1", '2: models.x: expected a section [models."NAME"], got 1'),
        ('[models.""]', '1: models."": expected a name of 1 to 256 characters'),
        (f"[models.{'x' * 257}]", f"1: models.{'x' * 257}: expected a name of 1 to 256 characters"),
        (f"{M}ttll = 3", "2: models.x.ttll: unknown setting; did you mean ttl?"),
        (f"{M}system-prompt = ''", "2: models.x.system-prompt: unknown setting; did you mean system_prompt?"),
        (f"{M}slots = 3", "2: models.x.slots: has no effect without command or url or urls"),
        (f"{M}timeout = 3", "2: models.x.timeout: has no effect without url"),
        (f"{P}timeout = 3", "3: models.x.timeout: has no effect without url"),
        (f"{P}url = 'http://a/v1'", "3: models.x.url: expected either this or command, not both"),
        (f"{P}path = '/a.gguf'", "2: models.x.command: expected either this or path, not both"),
        (f"{M}path = 'a.gguf'", "2: models.x.path: expected the absolute path of a model file, got 'a.gguf'"),
        (f"{M}mmproj = '/m.gguf'", "2: models.x.mmproj: has no effect without path"),
        (f"{M}path = '/a'\nslots = 3", "3: models.x.slots: has no effect without command or url or urls"),
        (f"{M}set.a = 1\nrequest_defaults.a = 2", "3: models.x.request_defaults.a: expected no such field"),
        (f"{M}request_defaults.model = 'x'", "2: models.x.request_defaults.model: model is the client's alone"),
        (f"{M}url = 'ftp://a/v1'", "2: models.x.url: expected an http or https address"),
        (f"{M}url = 'http://user:pw@a/v1'", "2: models.x.url: expected an http or https address"),
        (f"{M}url = 'http://a/v1?key=3'", "2: models.x.url: expected an http or https address"),
        (f"{M}urls = []", "2: models.x.urls: expected a non-empty list"),
        (f"{M}url = 'http://a/v1'\nmemory = 3", "3: models.x.memory: has no effect without command"),
        (f"{M}url = 'http://a/v1'\nmemory = 0", "3: models.x.memory: has no effect without command"),
        (f"{M}url = 'http://a/v1'\nstop_signal = 'TERM'", "3: models.x.stop_signal: has no effect without command"),
        (f"{M}restart_on_hangup = true", "2: models.x.restart_on_hangup: has no effect without command"),
        (f"{M}type = 'llm'", "2: models.x.type: has no effect without command or url or urls"),
        (f"{U}memory_limit = 3", "3: models.x.memory_limit: has no effect on a model of another server"),
        (f"{U}cpus = 3", "3: models.x.cpus: has no effect on a model of another server"),
        (f"{U}nice = 3", "3: models.x.nice: has no effect on a model of another server"),
        (f"{U}user = 'a'", "3: models.x.user: has no effect on a model of another server"),
        (f"{U}devices = ['0']", "3: models.x.devices: has no effect on a model of another server"),
        (f"{U}env.A = 'a'", "3: models.x.env: has no effect on a model of another server"),
        (f"{U}args = 'a'", "3: models.x.args: has no effect on a model of another server"),
        (f"{M}url = 'http://a:99999/v1'", "2: models.x.url: expected the address of a server, got 'http://a:99999/v1'"),
        (f"{M}url = 'http://a:abc/v1'", "2: models.x.url: expected the address of a server"),
        (f"{M}url = 'http://a:0/v1'", "2: models.x.url: expected the address of a server"),
        (f"{M}urls = ['http://a/v1', 'http://[::1/v1']", "2: models.x.urls: expected the address of a server"),
        ("[remotes.x]\nurl = 'http://a:65616/v1'", "2: remotes.x.url: expected the address of a server"),
        (
            f"{R}command = ['x', '{{port}}']",
            '4: models."gpu/x".command: expected no such key: the model is one of [rem',
        ),
        (f"{R}url = 'http://b/v1'", '4: models."gpu/x".url: expected no such key: the model is one of [remotes.gpu]'),
        (f"{R}served_name = 'y'", '4: models."gpu/x".served_name: expected no such key'),
        (f"{R}memory = 3", '4: models."gpu/x".memory: has no effect without command'),
        (f"{R}nice = 3", '4: models."gpu/x".nice: has no effect on a model of another server'),
        ("[remotes.x]\nslots = 3", "1: remotes.x: expected url, an http or https address"),
        ("[remotes.'a/b']\nurl = 'http://a/v1'", '1: remotes."a/b": expected a name of letters, digits'),
        ("[remotes.x]\nurl = 'http://a/v1'\nserved_name = 'a'", "3: remotes.x.served_name: unknown setting"),
        (f"{M}command = []", "2: models.x.command: expected a list such as"),
        (f"{M}command = 'vllm'", "2: models.x.command: expected a list such as"),
        (f"{M}command = ['x', '--port', '80']", "2: models.x.command: expected {port} in an argument or in env"),
        (f"{P}slots = 0", "3: models.x.slots: expected a whole number from 1 up to 4096, got 0"),
        (f"{P}health = 'x'", "3: models.x.health: expected a path such as /health, got 'x'"),
        (f"{P}device_memory = 5", "3: models.x.device_memory: has no effect without devices"),
        (f"{P}device_memory = -5", "3: models.x.device_memory: expected a whole number from 0"),
        (f"{U}device_memory = 0", "3: models.x.device_memory: has no effect without command"),
        (f"{P}stop_signal = 'KILL'", "3: models.x.stop_signal: expected one of TERM, INT"),
        (f"{P}type = 'chat'", "3: models.x.type: expected"),
        (f"{P}working_directory = 'x'", "3: models.x.working_directory: expected an absolute path, got 'x'"),
        (f"{P}api_key_file = '/k'\napi_key_env = 'K'", "4: models.x.api_key_env: expected either this or api_key_file"),
        (f"{P}api_key = 'secret'", "3: models.x.api_key: unknown setting; did you mean api_key_"),
        (f"{P}env.LEMONBUS_X = 'x'", "3: models.x.env.LEMONBUS_X: LEMONBUS_X is not given to an engine"),
        (f"{M}zzz = 3", "2: models.x.zzz: unknown setting; there are: options, args, env, devices, ttl"),
        ("[defaults.llamacpp]\naliases = ['a']", "2: defaults.llamacpp.aliases: unknown setting"),
        ("[defaults.llamacpp]\npreload = true", "2: defaults.llamacpp.preload: unknown setting"),
        ("[groups.g]\nmodel = 'a'", "2: groups.g.model: unknown setting; did you mean models?"),
        ("[model.x]\nttl = 1", "1: unknown setting 'model'; did you mean models?"),
        (f"{M}ttl = '5m'", "2: models.x.ttl: expected a number from 0 up to 31536000, got '5m'"),
        (f"{M}ttl = -1", "2: models.x.ttl: expected a number from 0 up to 31536000, got -1"),
        (f"{M}ttl = nan", "2: models.x.ttl: expected a number from 0"),
        (f"{M}pin = 1", "2: models.x.pin: expected true or false, got 1"),
        (f"{M}preload = 'yes'", "2: models.x.preload: expected true or false, got 'yes'"),
        (f"{M}concurrency = 0", "2: models.x.concurrency: expected a whole number from 1 up to 256, got 0"),
        (f"{M}concurrency = 1.5", "2: models.x.concurrency: expected a whole number from 1"),
        (f"{M}queue = true", "2: models.x.queue: expected a whole number from 1 up to 10000, got true"),
        (f"{M}memory_limit = -1", "2: models.x.memory_limit: expected a whole number from 0, got -1"),
        (f"{M}cpus = 0", "2: models.x.cpus: expected a number from 0.01 up to 4096, got 0"),
        (f"{M}nice = 20", "2: models.x.nice: expected a whole number from -20 up to 19, got 20"),
        (f"{M}user = 'a b'", "2: models.x.user: expected the name of a user, or its number as a text, got 'a b'"),
        (f"{M}user = 1000", "2: models.x.user: expected the name of a user"),
        (f"{M}aliases = 'a'", "2: models.x.aliases: expected a list of names of at most 256 characters, got 'a'"),
        (f"{M}aliases = ['']", "2: models.x.aliases: expected a list of names"),
        ('[models."a\\nb"]', '1: models."a\\nb": expected a name of 1 to 256 characters'),
        (f'{M}aliases = ["a\\nb"]', f"2: models.x.aliases: {TEXTS}"),
        (f'{M}aliases = ["\\u0001"]', f"2: models.x.aliases: {TEXTS}"),
        (f"{M}args = ['--mlock']", "2: models.x.args: expected a command line, as one text, got ['--mlock']"),
        (f'{M}args = "\\u0000"', f"2: models.x.args: {TEXTS}"),
        (f"{M}system_prompt = 3", "2: models.x.system_prompt: expected a text of at most 65536 characters, got 3"),
        (f"{M}system_prompt = '{'x' * 65537}'", "2: models.x.system_prompt: expected a text of at most 65536"),
        (f"{M}options = 3", "2: models.x.options: expected a table of load options: NAME = a value, got 3"),
        (f"{M}options.slots = {{}}", "2: models.x.options.slots: expected a number, a text, true or false, got {}"),
        (f"{M}\noptions.slots = [1]", "3: models.x.options.slots: expected a number, a text, true or false, got [1]"),
        (f"{M}options.a.b = 1", "2: models.x.options.a: expected a number, a text, true or false, got {'b': 1}"),
        (f"{M}env = 'A=1'", "2: models.x.env: expected a table of variables: NAME = \"text\", got 'A=1'"),
        (f"{M}env.A = 1", "2: models.x.env.A: expected a text of one line and at most 4096 characters, got 1"),
        (f'{M}env.A = "a\\nb"', "2: models.x.env.A: expected a text of one line"),
        (f"{M}env.\"A=B\" = 'x'", '2: models.x.env."A=B": expected the name of a variable: letters, digits and _'),
        (f"{M}devices = '0'", "2: models.x.devices: expected a list such as"),
        (f"{M}devices = [0]", "2: models.x.devices: expected a list such as"),
        (f"{M}devices = ['0,1']", "2: models.x.devices: expected a list such as"),
        (f"{M}devices = ['0', 'CUDA0']", "2: models.x.devices: expected either numbers and UUIDs or names"),
        (
            f"{M}devices = ['0']\nenv.CUDA_VISIBLE_DEVICES = '1'",
            "3: models.x.env.CUDA_VISIBLE_DEVICES: expected no such variable, because devices sets it",
        ),
        (f"{M}set = []", "2: models.x.set: expected a table of request fields: NAME = a value, got []"),
        (f"{M}set.model = 'y'", "2: models.x.set.model: model is the client's alone: it cannot be set or dropped"),
        (f"{M}set.stream = true", "2: models.x.set.stream: stream is the client's alone"),
        (f'{M}set."a b" = 1', '2: models.x.set."a b": expected the name of a request field'),
        (f"{M}set.a = inf", "2: models.x.set.a: expected a value that JSON also has, got inf"),
        (f"{M}set.a = [2024-01-01]", "2: models.x.set.a: expected a value that JSON also has, got [datetime.date"),
        (f"{M}set.temperature = 'hot'", "2: models.x.set.temperature: expected a number, got 'hot'"),
        (f"{M}set.temprature = 1", "2: models.x.set.temprature: no engine reads this field; did you mean temperature?"),
        (f"{M}set.stop = [1]", "2: models.x.set.stop: expected a text or a list of texts, got [1]"),
        (
            "[models.Qwen3-0.6B]\nttl = 1",
            '1: models.Qwen3-0.6B: unknown section; a name with dots needs quotes: [models."Qwen3-0.6B"]',
        ),
        (
            "[models.a.b.c.set]\nseed = 1",
            '1: models.a.b: unknown section; a name with dots needs quotes: [models."a.b.c"]',
        ),
        (f"{M}drop = 'top_k'", "2: models.x.drop: expected a list of names of request fields, got 'top_k'"),
        (f"{M}drop = ['messages']", "2: models.x.drop: messages is the client's alone"),
        (f"{M}drop = ['a']\n[models.x.set]\na = 1", "2: models.x.drop: a is also set"),
        (
            f"{M}args = ''\noptions.llamacpp_args = ''",
            "3: models.x.options.llamacpp_args: expected either this option or args, which is the same",
        ),
        (f"{M}replicas = 0", "2: models.x.replicas: expected a whole number from 1 up to 64, got 0"),
        (f"{M}min_replicas = 65", "2: models.x.min_replicas: expected a whole number from 1 up to 64, got 65"),
        (f"{M}replicas = 2\nmin_replicas = 2", "3: models.x.min_replicas: expected either this or replicas, not both"),
        (f"{M}replicas = 2\nmax_replicas = 2", "3: models.x.max_replicas: expected either this or replicas, not both"),
        (f"{M}min_replicas = 3\nmax_replicas = 2", "3: models.x.max_replicas: expected at least min_replicas, 3"),
        (f"{U}replicas = 2", "3: models.x.replicas: expected no such key: other servers run the model"),
        (f"{R}max_replicas = 2", '4: models."gpu/x".max_replicas: expected no such key: other servers run'),
        (f"{U}nodes = ['a']", "3: models.x.nodes: expected no such key: other servers run the model"),
        (f"{R}node_labels.zone = 'west'", '4: models."gpu/x".node_labels: expected no such key: other servers run'),
        (f"{M}nodes = ['a b']", "2: models.x.nodes: expected a list of patterns of names of nodes"),
        (f"{M}node_resources.npu = 0", "2: models.x.node_resources: expected a table of amounts above 0"),
        (f"{M}node_labels.zone = 1", "2: models.x.node_labels: expected a table of labels"),
        ("[defaults.llamacpp]\nnodes = ['a']", "2: defaults.llamacpp.nodes: unknown setting"),
        ("[defaults.llamacpp]\nreplicas = 2", "2: defaults.llamacpp.replicas: unknown setting"),
        (f"{M}aliases = ['a']\n[models.y]\naliases = ['a']", "4: models.y.aliases: 'a' already means the model 'x'"),
        (f"{M}aliases = ['y']\n[models.y]", "2: models.x.aliases: 'y' already means the model 'y'"),
        ("[groups.g]\nswap = true", "1: groups.g: expected models, a non-empty list of names of models"),
        ("[groups.g]\nmodels = []\nswap = true", "2: groups.g.models: expected a non-empty list of names of models"),
        ("[groups.g]\nmodels = ['a']", "1: groups.g: expected exclusive, swap or max_loaded"),
        (
            "[groups.g]\nmodels = ['a']\nswap = true\nmax_loaded = 2",
            "4: groups.g.max_loaded: expected 0 or 1, because swap allows one loaded model",
        ),
        (
            "[groups.g]\nmodels = ['a']\nswap = true\n[groups.h]\nmodels = ['b', 'a']\nswap = true",
            "5: groups.h.models: 'a' is already in the group 'g'",
        ),
        (
            f"{M}replicas = 2\naliases = ['a']\n[groups.g]\nmodels = ['a', 'b']\nswap = true",
            "2: models.x.replicas: expected at most 1: the group 'g' allows no more engines",
        ),
        (
            f"{M}min_replicas = 2\nmax_replicas = 3\n[groups.g]\nmodels = ['x']\nmax_loaded = 2",
            "3: models.x.max_replicas: expected at most 2: the group 'g' allows no more engines",
        ),
        (
            "\n".join(f"[models.m{number}]" for number in range(MAX_SECTIONS + 1)),
            f"1: models: expected at most {MAX_SECTIONS} sections, got {MAX_SECTIONS + 1}",
        ),
    ],
)
def test_what_is_wrong_is_named_with_its_line(text: str, expected: str) -> None:
    assert complaint(text=text).startswith(f"{PATH}:{expected}")


@pytest.mark.parametrize(
    "name",
    [
        *("LD_PRELOAD", "ld_preload", "LD_LIBRARY_PATH", "LD_AUDIT", "PYTHONPATH", "PYTHONSTARTUP", "BASH_ENV"),
        *("NODE_OPTIONS", "GLIBC_TUNABLES", "GCONV_PATH", "LEMONBUS_API_KEY", "LEMONADE_API_KEY", "HF_TOKEN"),
    ],
)
def test_variables_that_load_code_or_are_secret_are_refused(name: str) -> None:
    refusal = complaint(text=f"[defaults.llamacpp]\nenv.{name} = 'x'")
    assert refusal.startswith(f"{PATH}:2: defaults.llamacpp.env.{name}: {name} is not given to an engine")


def test_a_program_of_the_operators_own_may_get_any_variable() -> None:
    text = f"{P}env.LD_LIBRARY_PATH = '/opt/cuda'\nenv.HF_TOKEN = 'x'"
    assert resolved(text=text).settings.models["x"].env == {"LD_LIBRARY_PATH": "/opt/cuda", "HF_TOKEN": "x"}


def test_other_variables_are_taken() -> None:
    text = (
        "[models.x.env]\nCUDA_VISIBLE_DEVICES = '1'\nGGML_VK_DISABLE_F16 = '1'\nOMP_NUM_THREADS = ''\nhttps_proxy = 'x'"
    )
    assert len(resolved(text=text).settings.models["x"].env) == 4


KEYS = st.sampled_from([*ModelSettings.__struct_fields__, "ctx_size", "swap", "x"])


SCALARS = st.one_of(
    *(st.booleans(), st.integers(-2, 400), st.floats(), st.text(max_size=5)),
    st.sampled_from(["0", "CUDA0", "a b", "--mlock", "temperature"]),
)


TABLES = st.dictionaries(KEYS, SCALARS, max_size=2)


SECTIONS = st.dictionaries(KEYS, SCALARS | TABLES | st.lists(SCALARS, max_size=2), max_size=3)


@accepted_share(0.02, examples=300, sections=st.dictionaries(st.text(max_size=4), SECTIONS, max_size=2))
def test_any_sections_are_settings_or_an_error(sections: dict[str, Any]) -> bool:
    text = f"models = {_toml(sections)}"
    try:
        settings = resolved(text=text).settings
    except LemonbusError as problem:
        assert str(problem).startswith(f"{PATH}:1: models")  # noqa: PT017 - either outcome is right
        return False
    assert msgspec.json.decode(msgspec.json.encode(settings), type=Settings) == settings
    return True


def _toml(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_toml(key)} = {_toml(each)}" for key, each in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_toml, value)) + "]"
    if isinstance(value, str):
        return msgspec.json.encode(value).decode().replace("\x7f", "\\u007f")
    return str(value).lower() if isinstance(value, bool) else repr(value)
