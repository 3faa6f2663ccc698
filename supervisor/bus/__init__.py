"""The supervisor's end of the bus: its sockets, and shared ways of sending and waiting over them.

Outside, import `sockets.SupervisorBus` and `worker_barrier.WorkerBarrier`. What a message means does not belong here,
but in `supervisor.handlers`. Import no other folder of the supervisor here.
"""
