"""Evaluation: the paper's tables and figures, and the figures of docs/results.md."""
