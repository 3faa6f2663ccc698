"""What is said of a model and of what runs it: checkpoints, recipes, sampling defaults, devices, installations.

Any package may import these modules. They are data and pure functions, except for reading the environment and
installation folders. Downloads go to ``workers/jobs``, the catalogue to ``supervisor/models``.
"""
