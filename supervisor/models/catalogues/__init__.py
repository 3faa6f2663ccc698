"""Where models come from: the built-in catalogue, those that users registered or named, and the extra models directory.

Each gives `catalogue.CatalogueEntry`s; `supervisor.models.registry` puts them together, and others outside import `catalogue`.
What a name means among all entries is in `supervisor.models.names`. Add no import of `supervisor.models.options`.
"""
