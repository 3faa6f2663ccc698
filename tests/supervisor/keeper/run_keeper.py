"""The keeper with stand-ins: ``run_keeper.py FILE SILENCE``; pauses and the limit for silence are short."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from supervisor.keeper import fork_server_roles, heartbeat, keeper, restart_policy

heartbeat.SILENCE_S = float(sys.argv[2])
heartbeat.MAX_STEP_S = 0.3
heartbeat.FRESH_S = 0.7
keeper.TICK_S = 0.1
keeper.KILL_TIMEOUT_S = keeper.HAND_OVER_TIMEOUT_S = 1.0
restart_policy.UPGRADE_TIMEOUT_S = 3.0
restart_policy.MAX_PAUSE_S = fork_server_roles.PAUSE_S = 0.02

if __name__ == "__main__":
    stand_in = Path(__file__).with_name("stand_in.py")
    sys.exit(keeper.Keeper(os.environ, [sys.executable, "-S", str(stand_in), sys.argv[1]]).run())
