"""How a backend's program gets here: pinned wheels, or the archive of a release, checked by sha256 and unpacked safely.

Used by the job `install` alone. Messages to the supervisor do not belong here.
"""
