"""What a frontend counts, under its own and under vLLM's names."""
