"""Readers of data sets: IT2P, InViG, recorded episodes and photographs."""
