"""KV blocks that go to other workers and come from them, layer by layer while they are computed."""
