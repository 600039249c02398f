"""Load and faults for hours, and how the processes change meanwhile: `make soak`."""
