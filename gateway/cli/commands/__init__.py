"""The commands of `lemonbus`, one file each; a file's `command` is what `gateway.cli.main` runs, and its name is the command's.

Only `gateway.cli.main` imports these, one at a time.
What two commands share belongs in `gateway/cli`; no command imports another.
"""
