"""Tests of the worker jobs: pull, install, remove, probe. Against a fake hub and release server, in the job's own process

(``job_runner``) or in the test's (``in_process_downloader``). Routes that start jobs are tested in server/.
"""
