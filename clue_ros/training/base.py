"""`clue train base`: a PaliGemma 2 of the embedded model's size from scratch, in two stages.

Stage 1 trains the vision tower on dense targets (`vision`), stage 2 the projector and decoder on
it (`decoder`), frozen or learning on with them (`--tower-rate`). Both resume where they were
killed: run the same command again.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from transformers.models.paligemma.modeling_paligemma import PaliGemmaForConditionalGeneration

from clue_ros.data.tabletop.worlds import DEFAULT_WORLD, world_spec
from clue_ros.data.talk.words import plural
from clue_ros.data.vocabulary import vocabulary
from clue_ros.errors import ClueError
from clue_ros.model.backbone import quietly
from clue_ros.model.config import tiny_config
from clue_ros.model.processor import build_processor, build_tokenizer
from clue_ros.training.data import (
    add_data_arguments,
    add_via_argument,
    all_kinds,
    data_notes,
    load_training_data,
)
from clue_ros.training.decoder import Teaching, init_decoder
from clue_ros.training.decoder_stage import train_decoder
from clue_ros.training.loop import Settings, pick_device
from clue_ros.training.speed import add_speed_arguments, speed_of
from clue_ros.training.start import adopt, described, location_table
from clue_ros.training.vision_stage import load_tower, train_vision


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    add_data_arguments(parser)
    add_via_argument(parser)
    parser.add_argument(
        "--out", type=Path, default=Path("models/tabletop"), help="model folder to write"
    )
    parser.add_argument(
        "--init",
        default=None,
        help="a base to start from, of the same widths and at most as many blocks: folder or name",
    )
    parser.add_argument("--layers", type=int, default=None, help="blocks of the decoder; default 6")
    parser.add_argument("--vision-layers", type=int, default=None, help="of the tower; default 6")
    parser.add_argument(
        "--image-size", type=int, default=None, help="the picture's side in pixels; default 224"
    )
    parser.add_argument("--vision-steps", type=int, default=3000)
    parser.add_argument("--vision-batch", type=int, default=32, help="pictures a step")
    parser.add_argument("--vision-lr", type=float, default=2e-3)
    parser.add_argument("--decoder-steps", type=int, default=3000)
    parser.add_argument(
        "--decoder-batch", type=int, default=8, help="pictures a step, several queries each"
    )
    parser.add_argument("--decoder-lr", type=float, default=2e-3)
    parser.add_argument(
        "--tower-rate",
        type=float,
        default=0.0,
        help="share of --decoder-lr at which the tower learns on in stage 2; 0: it is frozen",
    )
    usual = Teaching()
    masks = "of the loss that tells attention where the {}; default %(default)s"
    parser.add_argument(
        "--look-weight", type=float, default=usual.look, help=masks.format("candidates are")
    )
    parser.add_argument(
        "--point-weight", type=float, default=usual.point, help=masks.format("target is")
    )
    parser.add_argument(
        "--location-sigma",
        type=float,
        default=usual.sigma,
        help="width of location targets in bins at the end, 0: plain cross-entropy; "
        "default %(default)s",
    )
    parser.add_argument(
        "--first-sigma",
        type=float,
        default=usual.first_sigma,
        help="their width when stage 2 begins, for a base that goes on from another's boxes it can "
        "be smaller; default %(default)s",
    )
    parser.add_argument(
        "--dense-weight",
        type=float,
        default=usual.dense,
        help="in stage 2, of what the tower's patches are taught in stage 1, where the tower "
        "learns on (--tower-rate); default %(default)s",
    )
    parser.add_argument(
        "--company-weight",
        type=float,
        default=usual.company,
        help="in stage 2, of what the picture's tokens are taught at half depth: each object's "
        "number and size among those of its kind; default %(default)s",
    )
    parser.add_argument(
        "--alone-share",
        type=float,
        default=0.0,
        help="of stage 2's steps, how many have one query a sequence and PaliGemma's own mask, "
        "where the picture sees the words, beside the last tenth; default %(default)s",
    )
    add_speed_arguments(parser)


def new_model(
    seed: int, world: str = DEFAULT_WORLD, kinds: Sequence[str] = (), **sizes: int
) -> tuple[Any, Any]:
    """An untrained model of the embedded size and its tokenizer; eager attention, which is read.

    world: whose words the tokenizer has. kinds: more of them, of the user's own meshes. sizes: of
    `tiny_config`, where they are others.
    """
    tokenizer = build_tokenizer([*vocabulary(world), *kinds, *map(plural, kinds)])
    config: Any = tiny_config(len(tokenizer), **sizes)
    config.text_config._attn_implementation = "eager"
    torch.manual_seed(seed)
    return PaliGemmaForConditionalGeneration(config), tokenizer


def sizes_of(args: argparse.Namespace) -> dict[str, int]:
    """The sizes that the options give, as `tiny_config` calls them; ClueError if one cannot be."""
    given = {name: getattr(args, name) for name in ("layers", "vision_layers", "image_size")}
    sizes = {name: size for name, size in given.items() if size is not None}
    usual: Any = tiny_config(vocab_size=1)
    patch = usual.vision_config.patch_size
    for name, size in sizes.items():
        if size < 1 or (name == "image_size" and size % patch):
            of = f"a multiple of {patch}" if name == "image_size" else "at least 1"
            raise ClueError(f"--{name.replace('_', '-')} must be {of}, not {size}")
    return sizes


def save_base(model: Any, tokenizer: Any, folder: Path) -> None:
    """Write config, safetensors, tokenizer and processor, as transformers lays them out."""
    folder.mkdir(parents=True, exist_ok=True)
    vision = model.config.vision_config
    grid = vision.image_size // vision.patch_size
    with quietly():
        model.save_pretrained(folder)
        build_processor(tokenizer, vision.image_size, grid * grid).save_pretrained(folder)


def run(args: argparse.Namespace) -> int:
    """Train both stages and write the base; 0 when it is there."""
    if args.threads:
        torch.set_num_threads(args.threads)
    device = pick_device(args.device)
    if not 0 <= args.alone_share <= 1:
        raise ClueError(f"--alone-share is a share from 0 to 1, not {args.alone_share}")
    kinds = [kind for kind in all_kinds(args) if kind not in world_spec(args.world).kinds]
    sizes = sizes_of(args)
    model, tokenizer = new_model(args.seed, args.world, kinds, **sizes)
    vision_config = model.config.vision_config
    start = None
    if args.init is not None:
        known = adopt(model, tokenizer, args.init)
        print(f"from {args.init}: {known} of {len(tokenizer)} tokens known", file=sys.stderr)
        start = (model.model.vision_tower, location_table(model, tokenizer))
    data = load_training_data(args, vision_config.image_size)
    began, speed = time.monotonic(), speed_of(args, device)
    asked = {name: sizes.get(name) for name in ("layers", "vision_layers", "image_size")}
    notes = {**described(args.init), **asked, "via": args.via, **data_notes(args, data)}
    vision = Settings(args.vision_steps, args.vision_batch, args.vision_lr, seed=args.seed)
    tower_file = train_vision(
        vision_config, data, vision, args.run / "vision", device, start, notes, speed
    )
    tower, table = load_tower(tower_file, vision_config)
    init_decoder(model, tower, table, tokenizer, fresh=start is None)
    decoder = Settings(args.decoder_steps, args.decoder_batch, args.decoder_lr, seed=args.seed)
    train_decoder(
        model,
        tokenizer,
        data,
        decoder,
        args.run / "decoder",
        device,
        notes,
        speed,
        args.tower_rate,
        Teaching(
            args.look_weight,
            args.point_weight,
            args.location_sigma,
            args.dense_weight,
            args.first_sigma,
            args.company_weight,
        ),
        args.alone_share,
    )
    save_base(model, tokenizer, args.out)
    note = {"seconds": round(time.monotonic() - began), "device": str(device), "out": str(args.out)}
    print(json.dumps(note))
    return 0
