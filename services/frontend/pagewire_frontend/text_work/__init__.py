"""Work on clients' texts outside the event loop: its queues, its bounds and its processes."""
