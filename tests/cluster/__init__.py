"""Servers over several nodes of a Ray cluster, in network namespaces: `make cluster`. `make test` leaves this folder out."""
