"""Libraries that read the memory of another worker: NIXL and Mooncake's transfer engine."""
