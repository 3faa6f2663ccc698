"""Tool calls in the text of an answer: the forms in which families of models write them, and their reader. All pure.

Our server for ONNX Runtime GenAI reads all its answers with it. The backend of llama.cpp reads those of models without
tools in their chat templates. Nothing here knows an engine, a library or the network.
"""
