"""Our engine servers over makers' libraries, as processes."""
