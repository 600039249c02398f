"""Plain data that enters or leaves the core: submissions, plans, results, events, settings."""
