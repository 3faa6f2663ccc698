"""gunicorn, configured in code: the master, its worker class, its log, and how a worker accepts connections.

`gateway.__main__` starts it; nothing else imports it. No route and no HTTP parsing here: `gateway.http` serves an
accepted connection.
"""
