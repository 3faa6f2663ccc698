"""The models that can be named: built-in catalogue, users' models, the extra directory, their names, files and options.

Outside, import `registry.ModelRegistry`, `catalogue.CatalogueEntry` and the functions of `files`, `options` and `state_files`.
Add no message handling, process or socket here.
"""
