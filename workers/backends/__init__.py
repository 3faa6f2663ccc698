"""The recipes: one folder each, the modules that they share (`requests` for translations), and `registry`, which lists them.

The supervisor may import `registry`. Importing it must stay light: no engine library, no socket and no process module.
The folder of one recipe does not import another's. What is special about one recipe never goes into the shared files.
"""
