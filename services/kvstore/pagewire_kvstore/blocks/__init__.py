"""Stored blocks as records, their leases, tenants and event log."""
