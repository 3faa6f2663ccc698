"""The ``ollama`` package for JavaScript, unmodified, against a server: ``errors.mjs`` runs in Node.js. That for Python is beside this folder."""
