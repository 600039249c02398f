"""What a measurement on a GPU is expected to show, from bytes, operations, launches and the host's
time per step. Nothing here needs a device; only what measures the host needs torch."""
