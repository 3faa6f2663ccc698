"""The settings: their declaration, the table made from it, and how flags, environment and file are resolved; the API keys.

Any package may import ``settings``, ``model_settings``, ``api_keys`` and ``key_file``; the command line imports
``resolver`` and ``fields``. A new setting is a field of ``Settings``, or of a section in
``model_settings``, and nothing else; ``section_checks`` has the checks that a type cannot express. Options of a recipe
are not settings and are not added here.
"""
