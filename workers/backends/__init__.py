"""What can be run here: one folder a recipe, what the recipes share, and `registry`, which lists them.

The supervisor may import `registry`. Importing it must stay light: no engine library, no socket and no process module.
A recipe's folder imports no other recipe's; one recipe's peculiarities never go into the shared files.
"""
