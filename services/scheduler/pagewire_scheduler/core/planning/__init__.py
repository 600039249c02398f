"""The plan of one step: running sequences, waiting sequences, preemption."""
