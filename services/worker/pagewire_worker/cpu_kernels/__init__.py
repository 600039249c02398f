"""The native decoder on C++ kernels for x86-64 and arm64 CPUs."""
