"""This machine: its GPUs, NPUs, cores, disks and memory as the kernel shows them, what limits the memory, and what reads it.

`hardware`, `pci`, `cgroups`, `host_memory` and `memory_pressure` read files below `/proc` and `/sys`. `device_readings`,
`device_measurements`, `disk_space`, `held_memory`, `memory_reader` and `memory_pressure_watch` run in the supervisor's loop. No program is run
here: vendors' tools and libraries may hang, so job processes use them.
"""
