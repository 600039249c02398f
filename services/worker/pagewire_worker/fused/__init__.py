"""The decoder on x86 CPUs as kernels of our own: one call for a step, weights packed once."""
