"""The life of a worker between its start and its end: awake with a replica, or asleep."""
