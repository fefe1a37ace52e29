"""The model: PaliGemma 2 at half depth, its two adapters, the detector and the constrained decoder."""
