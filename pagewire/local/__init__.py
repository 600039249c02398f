"""A whole deployment on this machine: one process per role, supervised. Calls no process's API."""
