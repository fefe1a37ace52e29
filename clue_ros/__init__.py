"""CLUE: a robot that looks, asks and points."""
