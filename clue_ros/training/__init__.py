"""Training: `base` (vision tower, decoder), `detector` (adapter A and head), `ivg` (adapter B)."""
