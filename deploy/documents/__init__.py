"""docs/ as a site: ``make docs`` builds it with MkDocs into build/site, and fails if a link is broken.

``mkdocs.yml`` has the navigation; ``hooks.py`` is what MkDocs calls. A page that is not in the navigation is an error. Nothing
here may be imported by a package of the server.
"""
