"""Data about models and what runs them: checkpoints, recipes, sampling defaults, devices, installations.

Any package may import these modules. They are data and pure functions, except for reading the environment and
installation folders. Downloads go to ``workers/jobs``, the catalogue to ``supervisor/models``.
"""
