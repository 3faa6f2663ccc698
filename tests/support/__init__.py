"""Code that tests of several folders share: a started server, clients of it, models, fakes, processes, ports, waiting.

Every test folder may import it. It holds no tests, and no helper that only one folder needs.
"""
