"""The keeper with stand-ins: ``run_keeper.py FILE [LIMIT=SECONDS …]``. Pauses are short; a limit that is not given is never reached."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from supervisor.keeper import fork_server_roles, heartbeat, keeper, restart_policy

NEVER_S = 600.0
limits = {name: float(seconds) for name, _, seconds in (word.partition("=") for word in sys.argv[2:])}
heartbeat.SILENCE_S = limits.get("silence", NEVER_S)
heartbeat.MAX_STEP_S = 0.3
heartbeat.FRESH_S = 0.7
keeper.TICK_S = 0.1
keeper.KILL_TIMEOUT_S = limits.get("kill", NEVER_S)
keeper.HAND_OVER_TIMEOUT_S = limits.get("hand_over", NEVER_S)
restart_policy.EARLY_S = NEVER_S
restart_policy.UPGRADE_TIMEOUT_S = limits.get("upgrade", NEVER_S)
restart_policy.MAX_PAUSE_S = fork_server_roles.PAUSE_S = 0.02

if __name__ == "__main__":
    stand_in = Path(__file__).with_name("stand_in.py")
    sys.exit(keeper.Keeper(os.environ, [sys.executable, "-S", str(stand_in), sys.argv[1]]).run())
