"""One open request: journal, text, stop strings and events."""
