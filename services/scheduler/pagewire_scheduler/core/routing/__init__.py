"""Which worker gets a request: admission, placement, balancing, draining."""
