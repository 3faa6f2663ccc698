"""Recipe `flm`: models on AMD's NPU through FastFlowLM.

Only `workers.backends.registry` imports it. What other recipes also need belongs in `workers.backends`.
"""
