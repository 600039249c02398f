"""Measuring: the questions, who answers them, and how answers are judged."""
