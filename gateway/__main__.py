"""``python -m gateway``: the HTTP front, started by the supervisor."""

from gateway.server import main

if __name__ == "__main__":
    main()
