"""Runs the cases: ``python -m tests.fuzz --cases 20000 --seed 7``. Exits 1 and prints every violation if there is one."""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from pathlib import Path

from tests.fuzz.cases import Fuzzer
from tests.fuzz.fakes import fakes_on_loopback
from tests.fuzz.known_names import MODELS
from tests.support.configuration_file import ConfiguredServer


def main() -> int:
    """Run them; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description="Random requests made of /openapi.json.")
    parser.add_argument("--cases", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**6))
    parser.add_argument("--refusals", type=int, default=0, help="show the most frequent reasons for 400")
    asked = parser.parse_args()
    print(f"fuzz: seed {asked.seed}, {asked.cases} cases", flush=True)
    started = time.monotonic()
    with (
        tempfile.TemporaryDirectory() as folder,
        fakes_on_loopback(Path(folder)) as settings,
        ConfiguredServer(*MODELS, **settings, log_level="info") as server,
    ):
        fuzzer = Fuzzer(f"http://127.0.0.1:{server.port}", asked.seed)
        try:
            fuzzer.run(asked.cases, lambda label: print(f"{time.monotonic() - started:7.1f} {label}", flush=True))
        except KeyboardInterrupt:
            print("fuzz: ended early; this is what was found", flush=True)
        exceptions = [line for line in server.lines if "exception" in line]
    for (mode, status), count in sorted(fuzzer.statuses.items()):
        print(f"{count:8} {mode} {status or 'no response'}")
    for (operation, message), count in fuzzer.refusals.most_common(asked.refusals):
        print(f"{count:8} refused {operation}: {message}")
    for (operation, _), text in sorted(fuzzer.violations.items()):
        print(f"VIOLATION {operation}: {text}")
    for line in exceptions:
        print(f"EXCEPTION {line.get('process')} {line.get('event')}\n{line['exception']}")
    wrong = len(fuzzer.violations) + len(exceptions)
    print(f"fuzz: {fuzzer.sent} cases, {wrong} violations; seed {asked.seed}")
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
