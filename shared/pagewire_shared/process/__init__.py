"""The life of a process: settings, logs, metrics, status, event loop."""
