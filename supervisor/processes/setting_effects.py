"""When a change of each setting takes effect. Pure.

A reload replaces the supervisor, so everything that only the supervisor reads takes effect at once. Gateways read their
settings when they start, and workers when they are started for a load; see `fingerprints`.
"""

from __future__ import annotations

from typing import Final

from protocol.messages.reload import SettingEffect

_NOW: Final = (SettingEffect.NOW,)
_GATEWAYS: Final = (SettingEffect.GATEWAYS,)
_LISTENER: Final = (SettingEffect.LISTENER, SettingEffect.GATEWAYS)
_NOW_AND_GATEWAYS: Final = (SettingEffect.NOW, SettingEffect.GATEWAYS)
_NEW_LOADS: Final = (SettingEffect.NEW_LOADS,)
_EVERYWHERE: Final = (SettingEffect.NOW, SettingEffect.GATEWAYS, SettingEffect.NEW_LOADS)
_NEXT_START: Final = (SettingEffect.NEXT_START,)

EFFECTS: Final[dict[str, tuple[SettingEffect, ...]]] = {
    "host": _LISTENER,
    "port": _LISTENER,
    "state_dir": _NEXT_START,
    "cache_dir": _NEXT_START,
    "runtime_dir": _NEXT_START,
    "extra_models_dir": _NOW_AND_GATEWAYS,
    "machine_dir": _NOW,
    "placement": _NEXT_START,
    "ray_address": _NEXT_START,
    "ray_gpus": _NEXT_START,
    "cluster_address": _NEXT_START,
    "worker_ports": _NEW_LOADS,
    "max_loaded_models": _NOW,
    "load": _NEXT_START,
    "pin": _NOW,
    "idle_ttl": _NOW,
    "gateway_workers": _GATEWAYS,
    "log_level": _NOW,
    "log_format": _EVERYWHERE,
    "offline": _NOW,
    "api_key": _GATEWAYS,
    "admin_api_key": _GATEWAYS,
    "allow_remote": _NOW,
    "llamacpp_backend": _NEW_LOADS,
    "llamacpp_args": _NEW_LOADS,
    "engine_file_dirs": _NEW_LOADS,
    "llama_server": _NEW_LOADS,
    "sdcpp_backend": _NEW_LOADS,
    "sd_server": _NEW_LOADS,
    "whispercpp_backend": _NEW_LOADS,
    "whisper_server": _NEW_LOADS,
    "ctx_size": _NEW_LOADS,
    "slots": _NEW_LOADS,
    "threads": _NEW_LOADS,
    "keep_prompt_cache": _NEW_LOADS,
    "prompt_cache_bytes": _NEW_LOADS,
    "prompt_cache_save_timeout": _NEW_LOADS,
    "backend_releases": _NOW,
    "release_mirror": _NOW,
    "body_limit": _GATEWAYS,
    "body_memory": _GATEWAYS,
    "spool_over": _GATEWAYS,
    "spool_limit": _GATEWAYS,
    "queue_requests": _NOW,
    "queue_bytes": _NOW_AND_GATEWAYS,
    "inbox_bytes": _GATEWAYS,
    "response_store_entries": _NOW,
    "response_store_bytes": _NOW,
    "response_store_ttl": _NOW,
    "file_bytes": _NOW_AND_GATEWAYS,
    "files_bytes": _NOW_AND_GATEWAYS,
    "files_bytes_of_key": _NOW_AND_GATEWAYS,
    "grace": _EVERYWHERE,
    "silence": _NEW_LOADS,
    "peer_silence": _EVERYWHERE,
    "memory_limit": _NEW_LOADS,
    "memory_reserve": _NOW,
    "device_memory_reserve": _NOW,
    "load_timeout": _NEW_LOADS,
    "subscribe_timeout": _NEW_LOADS,
    "header_silence": _GATEWAYS,
    "answer_silence": _GATEWAYS,
    "backoff_first": _NOW,
    "backoff_most": _NOW,
    "breaker_deaths": _NOW,
    "breaker_window": _NOW,
    "log_retained": _NOW,
    "usage_retention_days": _NOW,
    "mullama_metrics": _NOW,
    "metrics_models": _NOW,
    "allowed_hosts": _GATEWAYS,
    "trusted_proxies": _GATEWAYS,
    "moderation_model": _GATEWAYS,
    "fetch_images": _GATEWAYS,
    "fetch_images_networks": _GATEWAYS,
    "fetch_images_timeout": _GATEWAYS,
    "cors_origins": _GATEWAYS,
}
"""Every setting that is not a section. A setting that is missing here fails a test."""
