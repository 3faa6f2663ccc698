"""How tests speak with a server: raw HTTP, bursts of it, and the published packages, imported only where they are used."""
