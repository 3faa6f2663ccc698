"""The models that can be named, and what is known about them: names, files, and what this machine can run.

`catalogues/` is where they come from, `options/` what they are loaded with. Outside, import `registry.ModelRegistry`,
`download_registry.DownloadRegistry`, `registration`, `names`, `compatibility` and the functions of `files` and
`deletion_plan`.
Message handling, processes and sockets do not belong here.
"""
