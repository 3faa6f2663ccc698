"""Recipe `kokoro`: speech by Kokoro-82M over ONNX Runtime.

Only `workers.backends.registry` imports it, and our server its `voice_names`. What other recipes also need belongs in `workers.backends`.
"""
