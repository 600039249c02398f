"""Facts about models on disk and about this machine, without starting anything."""
