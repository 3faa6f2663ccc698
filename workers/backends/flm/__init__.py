"""Recipe `flm`: models on AMD's NPU through FastFlowLM.

Only `workers.backends.registry` imports it. What other recipes need as well belongs in `workers.backends`.
"""
