"""What each API answers, mostly through the unmodified clients of OpenAI and Anthropic, from real engines.

No engine is made to fail here, and no model is downloaded.
"""
