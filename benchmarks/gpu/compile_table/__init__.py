"""What Triton's compiler and ptxas make of the worker's kernels, which takes no device."""
