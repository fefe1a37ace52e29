"""Commands of ``clue`` that belong to no other part, one module each."""
