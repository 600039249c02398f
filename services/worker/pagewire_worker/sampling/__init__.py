"""Turns logits into tokens: logit rules, filters, noise and log-probabilities."""
