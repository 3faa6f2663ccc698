"""The supervisor's end of the bus: its sockets, and what is sent or awaited over them in one way by several others.

Outside, import `sockets.SupervisorBus` and `worker_barrier.WorkerBarrier`. What a message means does not belong here:
that is `supervisor.handlers`. Add no import of other folders of the supervisor.
"""
