"""The same work on the same model through this project and through other servers, as a table."""
