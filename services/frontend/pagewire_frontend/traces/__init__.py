"""Makes the spans of a request that has ended, from what was measured, and sends them by OTLP."""
