"""The network: its start, its tokens, its adapters and its exported folder."""
