"""What a model is loaded with: options in order of precedence, and the configuration's sections for a model.

`load_options` checks what clients give and keeps what they save, `model_configuration` owns the sections, and
`model_specs` merges both. All may be imported outside. The caller passes the entry of a model: only `settings_check`
looks one up, in the built-in catalogue.
"""
