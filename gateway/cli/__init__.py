"""The command line, a client of the HTTP API: the API client, options, output, progress, exit codes.

`deploy/launch` imports `main`, which imports a command's module when the command is used; nothing else may import this package.
One command is one file of `commands/`. It imports nothing else of `gateway`, so that it starts fast.
"""
