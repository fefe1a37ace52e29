"""Training: the base model, the two adapters and the fusion of their judgements."""
