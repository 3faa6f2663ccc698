"""The documented requests that install backends and describe the machine that they run on."""
