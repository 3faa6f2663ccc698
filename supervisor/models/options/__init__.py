"""What a model is loaded with: options by their precedence, and what the configuration's sections say for a model.

Outside, import `load_options`, `engine_fingerprint`, `model_configuration`, `model_policies`, `model_specs` and `settings_check`. Nothing here knows
which models there are, or where their files lie: the caller hands in the entry.
"""
