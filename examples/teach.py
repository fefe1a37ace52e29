# Copyright 2026 clue_ros contributors
# SPDX-License-Identifier: Apache-2.0
"""Show perception an object, say its name, and ask for it by this name.

scripts/run python examples/teach.py stapler 120 80 260 190     # a box of the camera's newest image
scripts/run python examples/teach.py stapler                    # what it pointed at last
"""

import sys

from clue_msgs.msg import BoundingBox

from clue_ros.nodes.client import CommandGrounder, GroundingError


def main() -> int:
    """Teach one example, and look for it."""
    name, sides = sys.argv[1], [float(side) for side in sys.argv[2:6]]
    box = None
    if sides:
        x_min, y_min, x_max, y_max = sides
        box = BoundingBox(x_min=x_min, y_min=y_min, x_max=x_max, y_max=y_max)
    with CommandGrounder() as grounder:
        try:
            grounder.wait_until_active(timeout=60.0)
            taught = grounder.teach(name, box)
            print(f"{taught.name}, examples: {taught.num_examples}")
            result = grounder.ground(f"the {name}", on_question=lambda asked: input(asked.text))
        except GroundingError as error:
            print(error, file=sys.stderr)
            return 1
        print(result.target.label, result.target.box, list(result.taught_names))
    return 0


if __name__ == "__main__":
    sys.exit(main())
