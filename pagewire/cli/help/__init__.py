"""The text of `--help`, in groups of flags."""
