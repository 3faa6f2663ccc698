"""The settings: their declaration, the table made from it, and how flags, environment and file are resolved; the API keys.

Any package may import ``settings`` and ``api_keys``; the command line imports ``resolver`` and ``fields``. A new setting is
a field of ``Settings`` and nothing else. Options of a recipe are not settings and are not added here.
"""
