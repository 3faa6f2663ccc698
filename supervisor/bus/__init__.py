"""The supervisor's end of the bus: its sockets, who is on it, and shared ways of sending and waiting over it.

Outside, import `sockets.SupervisorBus`, `peer_registry.PeerRegistry` and `worker_barrier.WorkerBarrier`. What a message means does not belong here,
but in `supervisor.handlers`. Import no other folder of the supervisor here.
"""
