"""Parts of plans that stand by themselves."""
