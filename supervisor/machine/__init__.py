"""This machine as the kernel shows it under `/proc` and `/sys`: its GPUs, NPUs, cores and memory, and what limits the memory.

Outside, import `hardware.read_machine`, `memory_pressure` and `machine_memory.MachineMemory`.
No program is run here: vendors' tools and libraries may hang, so job processes use them.
"""
