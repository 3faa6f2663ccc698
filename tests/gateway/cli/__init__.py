"""The terminal's commands against a fake server, in this process or in a pseudo-terminal.

No real server is started here.
"""
