"""The keeper: the process of ``lemonbus serve``, which starts the supervisor and starts it again when it dies.

It keeps what must outlive a supervisor: the lock of the runtime directory, the listener, and the processes of the server.
It stays small, because nothing starts it again: the standard library and `protocol.runtime.journal` alone, no ``typing``, no bus, no
settings, no log.
The supervisor imports `channel`, `error_output` and `process_tree`; nothing else outside imports it.
"""
