"""In which order sequences are served, and how much each tenant gets."""
