"""The memory that a llama-server needs, and the devices that it computes on: known before it is started. Pure.

Outside, import `estimate` and `device_choice`. `docs/memory.md` compares the estimates with measurements.
"""
