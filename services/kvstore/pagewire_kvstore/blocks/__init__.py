"""Stored blocks as plain data, their leases, tenants and event log."""
