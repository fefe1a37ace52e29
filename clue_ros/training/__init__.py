"""Training: `base` (vision tower, then decoder), `detector` (adapter A and head), `ivg` (adapter B)."""
