"""Recipes `oga-cpu`, `oga-npu`, `oga-hybrid` and `ryzenai-llm`: folders of ONNX files through ONNX Runtime GenAI.

Only `workers.backends.registry` imports it. What other recipes also need belongs in `workers.backends`.
"""
