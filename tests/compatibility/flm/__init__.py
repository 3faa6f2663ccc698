"""The documented requests to FLM models on the NPU, with a stand-in for flm (fake_engines/)."""
