"""Publishes what the caches of workers and KV stores hold, in vLLM's wire format over ZMQ."""
