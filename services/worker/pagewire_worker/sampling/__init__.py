"""From logits to tokens: logit rules, filters, noise and log-probabilities."""
