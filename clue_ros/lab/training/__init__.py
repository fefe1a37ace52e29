"""Training: the base model, the two adapters, and the weights of policy "both"."""
