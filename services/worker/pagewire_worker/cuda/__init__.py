"""The model on CUDA: steps that only decode are graphs, captured once for each size of a batch."""
