"""One file for each thing that can break while requests run: a process dies, hangs or is stopped, a client hangs up

or reads slowly, a model does not load. Each test checks what clients are told and that nothing is left over.
"""
