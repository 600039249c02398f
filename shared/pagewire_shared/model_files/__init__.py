"""Facts about a model that its files show, before anything of it is loaded."""
