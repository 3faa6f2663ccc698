"""The server over ONNX Runtime GenAI."""
