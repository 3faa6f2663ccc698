"""This machine's hardware as the kernel shows it under `/proc` and `/sys`: GPUs and NPUs; memory and cores by psutil.

Outside, import `hardware.read_machine`. No program is run here: vendors' tools may hang, so a job process runs them.
"""
