"""The model: PaliGemma 2 at half depth, two adapters, the detector, the constrained decoder."""
