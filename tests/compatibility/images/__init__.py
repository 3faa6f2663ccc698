"""Documented image requests against a real server with a fake ``sd-server``.

The real stable-diffusion library is tested in workers/.
"""
