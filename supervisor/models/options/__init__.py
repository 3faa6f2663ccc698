"""What a model is loaded with: options by their precedence, and what the configuration's sections say for a model.

`load_options` checks what clients give and keeps what they save, `model_configuration` owns the sections, `model_specs` merges both;
all may be imported outside. The caller hands in the entry of a model: only `settings_check` looks one up, in the built-in catalogue.
"""
