"""Kernels of latent attention (MLA, DeepSeek-AI, 2024) in its absorbed form."""
