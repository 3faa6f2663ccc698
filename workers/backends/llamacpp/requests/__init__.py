"""Requests as llama-server takes them: checked against the model, translated, and completed where it ignores a part. Pure.

Outside, import `translation`.
"""
