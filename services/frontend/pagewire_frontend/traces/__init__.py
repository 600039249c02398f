"""Makes the spans of a request from what was measured, when it has ended, and sends them by OTLP."""
