"""Tensor and pipeline parallelism: several processes of one host compute one model."""
