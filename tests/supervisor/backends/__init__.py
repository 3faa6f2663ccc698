"""Engine programs: which are installed, which can run."""
