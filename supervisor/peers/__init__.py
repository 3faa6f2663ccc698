"""The comings and goings of the processes on the bus, whichever supervisor has started them.

`handshake` answers a Hello, `monitor` pings and kills a peer that is silent, `peer_exit` says what follows from the end of a
gateway or a worker. `other_versions` lets the processes of another release finish. Both `supervisor.handlers` and
`supervisor.recovery` import these. `supervisor.processes` starts and kills them.
"""
