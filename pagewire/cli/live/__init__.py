"""Commands that show a running deployment as it changes."""
