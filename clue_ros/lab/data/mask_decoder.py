"""`clue data mask-decoder`: PaliGemma's published mask decoder (vae-oid.npz) as safetensors.

clue data mask-decoder vae-oid.npz --out models/full/mask_decoder.safetensors

The file's plain arrays are read, their names and shapes checked, and the decoder's half is written;
nothing is unpickled. A model folder that holds mask_decoder.safetensors uses it by itself.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from clue_ros.lab.options import output_file
from clue_ros.model.loading import MASK_DECODER
from clue_ros.model.mask_decoder import convert_mask_decoder


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of ``clue data mask-decoder``."""
    parser.add_argument("file", metavar="FILE.npz", type=Path, help="the published vae-oid.npz")
    parser.add_argument(
        "--out",
        type=output_file(".safetensors"),
        default=Path(MASK_DECODER),
        metavar="FILE.safetensors",
        help=f"file to write; default: {MASK_DECODER}, its name in a model folder",
    )


def run(args: argparse.Namespace) -> int:
    """Run ``clue data mask-decoder``; the exit status."""
    convert_mask_decoder(args.file, args.out)
    print(f"{args.out}: {args.out.stat().st_size / 1e6:.1f} MB")
    return 0
