"""What messages about models mean: lists and details, downloads, registration, options, loads and deletion.

Calls and the scheduler share `downloads.fetch`. What is known about models does not belong here, but in
`self._models`; `self._scheduler` decides when a model is loaded.
"""
