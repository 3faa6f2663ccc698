"""``python -m gateway``: the gateway, started by the supervisor."""

from gateway.server.gunicorn_master import main

if __name__ == "__main__":
    main()
