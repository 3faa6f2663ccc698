"""What messages about models mean: their lists and details, downloads, registration, options, loads and deletion.

`downloads.fetch` is shared by calls and the scheduler. What is known of models does not belong here: that is
`supervisor.models`; when one is loaded is decided in `supervisor.scheduler`.
"""
