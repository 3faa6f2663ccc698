"""The command line of the stand-in for ``flm``."""

from __future__ import annotations

import argparse
import json
import shutil
import sys

from tests.fake_engines import flm


def parsed(words: list[str]) -> argparse.Namespace:
    """Read a command line."""
    parser = argparse.ArgumentParser(prog="flm")
    parser.add_argument("command")
    parser.add_argument("tag", nargs="?", default="")
    for flag, kind, default in (
        ("--host", str, "127.0.0.1"),
        ("--port", int, 52625),
        ("--ctx-len", int, 32768),
        ("--pmode", str, "performance"),
        ("--filter", str, "all"),
        ("--socket", int, 10),
        ("--q-len", int, 10),
        ("--cors", int, 1),
        ("--embed", int, 0),
        ("--asr", int, 0),
    ):
        parser.add_argument(flag, type=kind, default=default)
    for flag in ("--quiet", "--json", "--force"):
        parser.add_argument(flag, action="store_true")
    return parser.parse_args(words)


def main(words: list[str]) -> int:
    """Carry out a command line."""
    given = parsed(words)
    if given.tag and given.tag not in flm.MODELS:
        flm.say("ERROR", f"Model not found: {given.tag}; Please check with `flm list` and try again.")
        return 1
    if given.command == "serve":
        import asyncio  # noqa: PLC0415 - which the other commands are quicker without

        from tests.fake_engines.flm_server import FakeFlmServer  # noqa: PLC0415

        asyncio.run(FakeFlmServer(given).run())
    elif given.command == "pull":
        return 0 if flm.pull(given.tag) else 1
    elif given.command == "remove":
        shutil.rmtree(flm.home() / "models" / flm.MODELS[given.tag][0], ignore_errors=True)
    elif given.command == "list":
        print(json.dumps(flm.listed(given.filter), indent=4))
    elif given.command == "version":
        print(json.dumps({"version": flm.VERSION}) if given.json else f"FLM v{flm.VERSION}")
    elif given.command == "validate":
        report = flm.validated()
        print(json.dumps(report, indent=4))
        return 0 if report["ready"] else 1
    else:
        print(f"Invalid command: {given.command}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
