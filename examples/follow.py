# Copyright 2026 clue_ros contributors
# SPDX-License-Identifier: Apache-2.0
"""Find an object, and print where it is while the camera and the object move.

scripts/run python examples/follow.py "the red mug" [SECONDS]
"""

import sys
import time

from clue_ros.nodes.client import CommandGrounder, GroundingError


def main() -> int:
    """Follow one object for some seconds (30)."""
    seconds = float(sys.argv[2]) if len(sys.argv) > 2 else 30.0
    with CommandGrounder() as grounder:
        try:
            grounder.wait_until_active(timeout=60.0)
            grounder.ground(sys.argv[1], on_question=lambda asked: input(asked.text + " "))
            _ = grounder.tracked  # subscribes, before the first message
            number = grounder.follow()
            end = time.monotonic() + seconds
            while time.monotonic() < end:
                seen = grounder.tracked.get(number)
                if seen is not None:
                    print("lost" if seen.lost else seen.object.box)
                time.sleep(0.2)
            grounder.unfollow(number)
        except GroundingError as error:
            print(error, file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
