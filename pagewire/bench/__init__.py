"""Load on any OpenAI-compatible server and what came of it. Knows nothing of Pagewire's insides."""
