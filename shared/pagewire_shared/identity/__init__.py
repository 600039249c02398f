"""Ids, names and keys of models, workers, tenants and frontends."""
