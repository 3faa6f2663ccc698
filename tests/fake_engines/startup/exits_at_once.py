"""Prints the reason, with a path of the machine in it, and exits with 3."""

import sys

if __name__ == "__main__":
    sys.stderr.write("error while loading shared libraries: /opt/secret/libggml.so: cannot open shared object file\n")
    sys.exit(3)
