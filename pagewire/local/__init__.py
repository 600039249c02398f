"""A whole deployment on this machine: one supervised process per role."""
