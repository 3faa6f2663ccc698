"""Models of a real server: where they come from, which one answers, how long it stays loaded, and its settings.

A recipe with an engine of its own (ONNX Runtime GenAI) also has its tests here. What one API answers goes to apis/.
"""
