"""The OpenAPI document at ``/openapi.json``, made of the routes and their declared types, and the page at ``/docs`` that shows it.

`routes.py` is what ``app.py`` imports; the rest is imported when the first client asks. What a family's routes take and answer is
declared in that family's module `documentation`, not here.
"""
