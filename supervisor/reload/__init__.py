"""Reloading the configuration while the server runs: what has changed, when each change takes effect, and applying it.

`plan.py` is pure. `supervisor.processes.setting_effects` says which processes a setting concerns. `resolution.py` is a
separate process, because reading a file may take any time. A change takes effect because a new supervisor takes over
with the new settings; there is no other way to change a setting.
"""
