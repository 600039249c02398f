"""The training loop: batches, optimizers, checkpoints and progress."""
