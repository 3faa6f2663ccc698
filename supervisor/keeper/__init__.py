"""The keeper: the process of ``lemonbus serve``, which starts the supervisor and restarts it when it dies.

It keeps what must outlive a supervisor: the lock of the runtime directory, the listener, and the processes of the
server. It stays small, because nothing restarts it: it uses only the standard library, `protocol.runtime.journal_priorities` and
`protocol.state_table`, and has no ``typing``, bus, settings or log. The supervisor imports `channel`, `error_output`
and `process_tree`; nothing else outside imports it.
"""
