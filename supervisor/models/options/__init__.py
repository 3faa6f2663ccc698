"""What a model is loaded with: options in order of precedence, and the configuration's sections for a model.

`load_options` checks options against a recipe, `saved_options` keeps those of clients, `model_configuration` owns the
sections, and `model_specs` merges all of them. All may be imported outside. The caller passes the entry of a model: only
`settings_check` looks one up, in the built-in catalogue.
"""
