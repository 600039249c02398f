"""KV blocks that leave the worker and come back: what is sent when, through which store."""
