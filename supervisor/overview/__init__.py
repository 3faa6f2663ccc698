"""What the page, `lemonbus top` and other followers see of the running server: the report, and what must be remembered for it.

Pure: everything is told to these files when it happens, or asked for when the report is made. The handler of the calls
is :mod:`supervisor.handlers.overview`. Nothing here may cost a request more than adding to a list.
"""
