"""A stand-in for the stable-diffusion-cpp-python package, which takes ten minutes to compile. As in the original,

importing this file costs time and causes trouble, and the bindings are in the module of the same name.
"""

raise ImportError("only the bindings are wanted")
