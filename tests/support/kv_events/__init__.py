"""An outside index of KV events, and a cell that gives it work."""
