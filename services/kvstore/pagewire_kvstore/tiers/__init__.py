"""Where blocks are kept: memory, disk and Redis behind one protocol."""
