"""The pure scheduler: `(state, events, now) -> plans and tokens`. Imports no event loop, no
network, no clock, no dice and no generated messages, so that a test can drive it through any
history."""
