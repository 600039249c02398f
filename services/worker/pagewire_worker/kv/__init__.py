"""The paged KV cache: tensors, block hashes, and copies of blocks."""
