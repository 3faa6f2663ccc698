"""One file for each thing that can break while requests run, in a folder named after what breaks.

Each test checks what clients are told and that nothing is left over. What several folders need is beside this file.
"""
