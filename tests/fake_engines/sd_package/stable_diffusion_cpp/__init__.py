"""A stand-in for the stable-diffusion-cpp-python package, which takes ten minutes to compile.

Like the original's, this file costs time and causes trouble, and its bindings are in the module of the same name.
"""

raise ImportError("only the bindings are wanted")
