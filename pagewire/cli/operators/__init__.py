"""Actions of `pagewire admin` about workers and processes."""
