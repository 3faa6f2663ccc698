"""The documented requests to models of FLM on the NPU, with a stand-in for its program (fake_engines/)."""
