"""Large JSON bodies, read in a process of their own: their parser keeps the interpreter lock, and
with it every stream, for as long as it works."""
