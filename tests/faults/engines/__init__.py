"""Engines that die, hang or break a connection: what each API then tells its client, and how the engine comes back."""
