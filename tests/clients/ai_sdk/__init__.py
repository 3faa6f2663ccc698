"""The AI SDK for JavaScript, unmodified, against a server: its checks are ``checks.mjs``, run in one process of Node.js.

Node.js is a wheel; the packages are those of ``package-lock.json``, installed into the tests' cache and never into the
repository.  Checks in other languages do not belong here.
"""
