"""``python -m gateway``: the HTTP front, started by the supervisor."""

from gateway.server.gunicorn_master import main

if __name__ == "__main__":
    main()
