# Copyright 2026 clue_ros contributors
# SPDX-License-Identifier: Apache-2.0
"""The model: PaliGemma 2 at half depth, two adapters, the detector, the constrained decoder."""

import logging

# Where bitsandbytes is installed, peft imports it, and on a CPU it warns that a faster kernel could
# be downloaded: our commands print one line when something is wrong, and nothing else.
logging.getLogger("bitsandbytes").setLevel(logging.ERROR)
