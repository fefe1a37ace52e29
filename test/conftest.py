"""Fixtures for all tests. Nothing here reaches the network."""

import os

# Before torch is imported anywhere: small models run slower on many threads, and a model that is
# not on this machine must fail at once instead of asking the hub.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")

from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest


@pytest.fixture(scope="session")
def random_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A complete model folder with random weights; do not write to it."""
    from clue_ros.model.tiny import write_random_model

    return write_random_model(tmp_path_factory.mktemp("random_model"))


@pytest.fixture
def picture() -> npt.NDArray[np.uint8]:
    """A noise image, uint8 RGB, 60 rows and 80 columns."""
    return np.random.default_rng(0).integers(0, 256, (60, 80, 3), dtype=np.uint8)
