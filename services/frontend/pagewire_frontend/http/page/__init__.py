"""The pages of a frontend for a browser: a chat at `/` and the API at `/docs`, and the state that
they show."""
