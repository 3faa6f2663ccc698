"""The memory and use of devices as their drivers show them: NVIDIA's library, and the kernel's files for AMD's and Intel's.

`workers/jobs/read_devices.py` calls these, in a thread of its process. Each call may hang in a driver.
"""
