"""The hardware of this machine, as the kernel shows it under `/proc` and `/sys`: processors, memory, GPUs, NPUs.

Outside, import `hardware.read_machine`. Run no program here: makers' tools may hang, so a job process asks them.
"""
