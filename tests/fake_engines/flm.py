"""A stand-in for FastFlowLM's ``flm``, which needs an NPU: its models and its reports about them, without inference.

``flm_program`` is its command line, ``flm_server`` its HTTP.  Everything that is odd in them is also odd in the real program.  ``installed`` puts it on a PATH of its own, next to a folder with its models and ``knobs.json``, which it reads whenever it needs one:

- ``load_s``, ``token_s``: how long a model takes to load, and a token to come; ``words``: tokens of an answer
- ``load_fails``: a model that cannot be loaded; ``pull_fails``: one that cannot be fetched
- ``ready``: whether ``validate`` finds all that is needed
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).parents[2]
VERSION: Final = "0.9.35"
MIB: Final = 1024 * 1024
FILES: Final = {"config.json": 0.001, "tokenizer.json": 16.4, "model.q4nx": 1100.0}
"""File of a model → its reported MiB."""
MODELS: Final = {
    "llama3.2:1b": ("Llama-3.2-1B-NPU2", 1_235_814_432),
    "qwen3:0.6b": ("Qwen3-0.6B-NPU2", 596_049_920),
    "embed-gemma:300m": ("Embedding-Gemma-300M-NPU2", 307_581_696),
    "whisper-v3:turbo": ("Whisper-V3-Turbo-NPU2", 808_878_080),
}


def installed(folder: Path) -> Path:
    """Put the program into ``folder/bin``; return the folder that it keeps everything in."""
    home = folder / "flm"
    home.mkdir(parents=True)
    program = folder / "bin" / "flm"
    program.parent.mkdir(exist_ok=True)
    python = f"FLM_MODEL_PATH={home} PYTHONPATH={ROOT} exec {sys.executable}"
    program.write_text(f'#!/bin/sh\n{python} -m tests.fake_engines.flm_program "$@"\n')
    program.chmod(0o755)
    return home


def set_behaviour(home: Path, **knobs: Any) -> None:
    """Set these knobs, and reset all others."""
    draft = home / "knobs.new"
    draft.write_text(json.dumps(knobs))
    draft.replace(home / "knobs.json")


def behaviour(name: str, default: Any) -> Any:
    """Read a knob."""
    path = home() / "knobs.json"
    return json.loads(path.read_text()).get(name, default) if path.exists() else default


def note(oddity: str) -> None:
    """Record something that a careful caller would prevent."""
    with (home() / "oddities").open("a") as file:
        print(oddity, file=file)


def home() -> Path:
    """The folder that contains everything."""
    return Path(os.environ["FLM_MODEL_PATH"])


def is_there(tag: str) -> bool:
    """Whether a model was fetched."""
    return (home() / "models" / MODELS[tag][0] / "model.q4nx").exists()


def say(who: str, text: str) -> None:
    """Print a line in the form of all of its lines."""
    print(f"[{who}]  {text}", flush=True)


def pull(tag: str) -> bool:
    """Fetch a model, if it is missing. The fetched amount is written again and again over one line."""
    if is_there(tag):
        say("FLM", "Model is already downloaded.")
        say("FLM", "All required files are present.")
        return True
    folder = home() / "models" / MODELS[tag][0]
    folder.mkdir(parents=True, exist_ok=True)
    say("FLM", f"Model: {tag}")
    say("FLM", f"Missing files ({len(FILES)}):")
    for file in FILES:
        print(f"  - {file}", flush=True)
    say("FLM", f"Files to download ({sum(FILES.values()):.2f} MB): ")
    for file, size in FILES.items():
        print(f"  - {file} ({size:.2f} MB)", flush=True)
    for number, (file, size) in enumerate(FILES.items(), 1):
        say("FLM", f"Downloading {number}/{len(FILES)}: {file}")
        if behaviour("pull_fails", default=False):
            print("CURL error: Couldn't resolve host name", file=sys.stderr, flush=True)
            say("ERROR", f"Failed to pull model: {tag}")
            return False
        if size > 100:  # only files that take time are reported
            for part in (0.1, 0.9):
                progress_line = f"\r\033[K[FLM]  Downloading: {100 * part:.1f}% ({size * part:.1f}MB / {size:.1f}MB)"
                print(progress_line, end="", flush=True)
            print(flush=True)
        say("FLM", "Checking Hash...")
        (folder / file).write_text("{}")
        print(f"\r[FLM]  Overall progress:  {number}/{len(FILES)} files", flush=True)
    return True


def listed(which: str) -> dict[str, Any]:
    """What ``list --json`` says."""
    entries = [
        {"name": tag, "model": tag, "size": size, "url": f"https://hub/{name}", "installed": is_there(tag)}
        for tag, (name, size) in MODELS.items()
    ]
    return {"models": [entry for entry in entries if which == "all" or entry["installed"] == (which == "installed")]}


def validated() -> dict[str, Any]:
    """What ``validate --json`` says."""
    ready = bool(behaviour("ready", default=True))
    fine = {"kernel_ok": True, "all_fw_ok": ready, "enough_cols": True, "memlock_ok": True}
    return {"object": "npu_stack_validation", "platform": "linux", "amd_device_found": True, **fine, "ready": ready}
