"""The soak benchmark of the operator's page, in its short form: frames are dropped, not queued."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pytest
import ros_helpers

ros_helpers.need_ros()
pytest.importorskip("websockets")

import cv2  # noqa: E402

from benchmarks.console_soak import age, write_clock  # noqa: E402

SOAK = ros_helpers.ROOT / "benchmarks" / "console_soak.py"


def test_a_clock_is_read_from_the_jpeg_that_it_was_written_into() -> None:
    image = np.full((180, 320, 3), 90, np.uint8)
    for seconds in (0.0, 1.234, 9999.5, 123_456.789):
        write_clock(image, seconds)
        jpeg = cv2.imencode(".jpg", image, [cv2.IMWRITE_JPEG_QUALITY, 85])[1].tobytes()
        assert age(jpeg, seconds + 0.25) == pytest.approx(0.25, abs=0.002)


def test_a_slow_page_misses_frames_and_a_fast_one_does_not_wait_for_it() -> None:
    counts = ["--seconds", "6", "--size", "320x180"]
    done = subprocess.run(
        [sys.executable, str(SOAK), *counts],
        capture_output=True,
        text=True,
        cwd=ros_helpers.ROOT,
        env=ros_helpers.isolate(),
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    told = json.loads(done.stdout)
    fast, slow = told["pages"]["fast"], told["pages"]["slow"]
    assert "error" not in fast
    assert "error" not in slow
    assert told["sent"] == 180
    # At half a second each, the slow page can have drawn no more than these.
    assert 0 < slow["frames"] <= told["seconds"] / 0.5 + 2
    assert fast["frames"] > slow["frames"]
    # Frames that the slow page did not take were not kept for it: queued, they would be 5 s old.
    assert slow["age_ms"]["median_of_the_second_half"] < 2000
    memory = told["memory"]
    assert memory["first_mb"] > 50
    assert memory["highest_mb"] - memory["first_mb"] < 150
