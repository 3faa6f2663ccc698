"""The commands of `lemonbus`, one file each. `gateway.cli.main` runs a file's `command`, which is named after the file.

Only `gateway.cli.main` imports these, one at a time.
What two commands share belongs in `gateway/cli`; no command imports another.
"""
