"""The recipe `command`: a program of the operator's own, with OpenAI's API, that a section of the configuration names.

`descriptor` says what such models serve, `backend` starts the program.
"""
