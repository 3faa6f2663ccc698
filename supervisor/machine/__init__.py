"""The hardware of this machine, as the kernel shows it under `/proc` and `/sys`: GPUs and NPUs; memory and cores by psutil.

Outside, import `hardware.read_machine`, and `process_memory` for what a process uses. Run no program here: vendors'
tools may hang, so a job process runs them.
"""
