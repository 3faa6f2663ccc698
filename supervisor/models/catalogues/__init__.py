"""Where models come from: the built-in catalogue, users, the extra models directory, the configuration, and other servers.

Each yields `catalogue.CatalogueEntry`s, and `supervisor.models.registry` puts them together. Others outside import
`catalogue`. `supervisor.models.names` decides what a name means among all entries. Do not import
`supervisor.models.options` here.
"""
