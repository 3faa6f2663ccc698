"""The keeper: its decisions as tables, and as a real process with supervisors that stand in for the real one."""
