"""The native decoder on C++ kernels for x86 CPUs."""
