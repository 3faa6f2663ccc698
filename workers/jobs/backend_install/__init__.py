"""How a backend's program gets here: pinned wheels, or a release's archive, checked by sha256 and unpacked safely.

Only the job `install` uses it. Messages to the supervisor do not belong here.
"""
