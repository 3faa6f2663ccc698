"""The command line, a client of the HTTP API: the API client, options, output, progress, exit codes.

`deploy/launch` imports `main`, which imports a command's module when the command is used; nothing else may import this package.
One command is one file of `commands/`. Of `gateway` it imports only the declarations of routes in `gateway/api`, and what an overview
is in `gateway/overview`, which import no library of the server, so that a command starts fast.
"""
