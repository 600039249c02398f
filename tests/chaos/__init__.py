"""Injects faults into every process and link of a deployment under load, and compares what clients
read with undisturbed runs."""
