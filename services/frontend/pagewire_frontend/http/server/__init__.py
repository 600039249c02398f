"""The HTTP server: connections, limits, access, errors."""
