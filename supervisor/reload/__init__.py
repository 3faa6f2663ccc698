"""The configuration is read again while the server runs: what has changed, when each change takes effect, and doing so.

`plan.py` is pure; which processes a setting concerns is in `supervisor.processes.setting_effects`. `resolution.py` is a process
of its own, because reading a file may take as long as it likes.
A change takes effect because a new supervisor takes over with the new settings; there is no other way to change a setting.
"""
