"""Runs the soak: ``python -m tests.soak --minutes 2 --seed 7``. Exits 1 and prints every violation if there is one."""

from __future__ import annotations

import argparse
import random
import sys
import traceback
from pathlib import Path

from tests.soak import one_machine, several_machines
from tests.soak.history import History


def main() -> int:
    """Run it; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description="Random requests and random faults.")
    parser.add_argument("--minutes", type=float, default=2.0)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**6))
    parser.add_argument("--clients", type=int, default=0, help="8, and 14 with nodes")
    parser.add_argument("--nodes", type=int, default=0, help="other machines of the server, and a gateway on one more")
    parser.add_argument("--log", type=Path, help="a file for what was done, and what the server and its nodes logged")
    asked = parser.parse_args()
    clients = asked.clients or (14 if asked.nodes else 8)
    where = f"{asked.nodes} nodes" if asked.nodes else "one machine"
    print(f"soak: seed {asked.seed}, {where}, {asked.minutes:g} minutes, {clients} clients", flush=True)
    history = History()
    try:
        if asked.nodes:
            several_machines.run(asked.nodes, asked.minutes * 60, asked.seed, clients, history, asked.log)
        else:
            one_machine.run(asked.minutes * 60, asked.seed, clients, history, asked.log)
    except AssertionError as error:
        traceback.print_exc()
        history.violate(str(error)[:1000])
    for kind, count in sorted(history.counts.items()):
        print(f"{count:8} {kind}")
    for violation in history.violations[:50]:
        print(f"VIOLATION {violation}")
    print(f"soak: {len(history.violations)} violations; seed {asked.seed}")
    return int(bool(history.violations))


if __name__ == "__main__":
    sys.exit(main())
