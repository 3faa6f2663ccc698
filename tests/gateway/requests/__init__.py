"""One request's life: its inbox, and its retry."""
