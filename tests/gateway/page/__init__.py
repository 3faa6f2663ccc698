"""The page: its files as the server gives them, and its modules, whose own tests (``*.test.mjs``) run in Node.js."""
