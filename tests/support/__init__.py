"""What tests of several folders share: a started server and its HTTP client, processes, ports, waiting, audio, images.

Every test folder may import it. It holds no tests, and no helper that only one folder needs.
"""
