"""gunicorn, configured in code: the master, its worker class, and its log.

`gateway.__main__` starts it; nothing else imports it.
No route and no HTTP parsing here.
"""
