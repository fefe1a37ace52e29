"""`clue train ivg`: adapter B on the frozen base (section III-A), which asks or grounds.

Token cross-entropy on the suffix only, over pairs made by cumulative reveal. Location tokens are
taught with narrow Gaussian targets (a neighbouring bin is nearly right), and each suffix token's
attention is still shown its object where masks are known.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import torch
from torch import Tensor

from clue_ros.model.adapters import IVG, Adapters, lora_config
from clue_ros.model.ivg import IvgSettings, save_ivg_settings
from clue_ros.training.adapters_data import Sample, draw_samples, frozen_base, held_out_samples
from clue_ros.training.data import add_data_arguments, load_training_data
from clue_ros.training.decoder import PackedDecoder
from clue_ros.training.loop import Group, Settings, train

SIGMA_BINS = 1.5


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    add_data_arguments(parser)
    parser.add_argument(
        "--model", type=Path, default=Path("models/tabletop"), help="folder with the base"
    )
    parser.add_argument("--out", type=Path, default=None, help="adapter folder; default MODEL/ivg")
    parser.add_argument("--steps", type=int, default=260)
    parser.add_argument(
        "--batch", type=int, default=8, help="pictures a step, three dialogue moments each"
    )
    parser.add_argument("--lr", type=float, default=7e-4)


def run(args: argparse.Namespace) -> int:
    """Train adapter B and write its folder."""
    backbone, processor, device = frozen_base(args)
    adapters = Adapters(backbone)
    adapters.add(IVG, lora_config(range(backbone.blocks)))
    adapters.use(IVG, train=True)
    decoder = PackedDecoder(backbone.model, processor.tokenizer, device)
    data = load_training_data(args, backbone.config.vision_config.image_size)
    settings = Settings(args.steps, args.batch, args.lr, schedule="linear", seed=args.seed)
    fixed = held_out_samples(data, "clarify", per_picture=2)

    def losses(pictures: list[list[Sample]]) -> dict[str, Tensor]:
        features = decoder.features([p[0][0] for p in pictures])
        rows = [i for i, picture in enumerate(pictures) for _ in picture]
        batch = [(scene, [query]) for picture in pictures for scene, query in picture]
        return decoder.losses(features[rows], batch, SIGMA_BINS, image_sees_prefix=True)

    def training_mode() -> None:
        backbone.model.train()
        backbone.model.model.vision_tower.eval()

    def evaluate() -> dict[str, float]:
        backbone.model.eval()
        figures = {}
        with torch.no_grad():
            for name, pictures in fixed.items():
                rows = [losses(pictures[i : i + 10]) for i in range(0, min(100, len(pictures)), 10)]
                for key in rows[0]:
                    figures[f"{name}_{key}"] = round(
                        float(torch.stack([r[key] for r in rows]).nanmean()), 4
                    )
        training_mode()
        return figures

    training_mode()
    train(
        lambda step: losses(draw_samples(data, settings, step, "clarify")),
        [Group([p for p in adapters.parameters(IVG) if p.requires_grad])],
        settings,
        args.run / "ivg",
        evaluate=evaluate,
    )
    backbone.model.eval()
    out = args.out if args.out is not None else args.model / IVG
    adapters.save(IVG, out)
    figures = evaluate()
    save_ivg_settings(IvgSettings(), out, validation=figures)
    print(json.dumps({"out": str(out), **figures}))
    return 0
