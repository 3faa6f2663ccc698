"""What messages about models mean: lists and details, downloads, registration, options, loads and deletion.

Calls and the scheduler share `downloads.fetch`. What is known about models does not belong here, but in
`supervisor.models`; `supervisor.scheduler` decides when a model is loaded.
"""
