"""CUDA graphs, static inputs and the sampler for CUDA devices."""
