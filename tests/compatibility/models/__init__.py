"""The documented requests that list, pull, load, unload and delete models, and show them before they are pulled."""
