"""The pure scheduler: `(state, events, now) -> plans and tokens`. It imports no event loop,
network, clock, random numbers or generated messages, so a test can drive it through any history."""
