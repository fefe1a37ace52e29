"""`clue train base`: a PaliGemma 2 of the embedded model's size from scratch, in two stages.

Stage 1 trains the vision tower on dense targets (`vision`), stage 2 the projector and decoder on
it (`decoder`), frozen or learning on with them (`--tower-rate`). Both resume where they were
killed: run the same command again.
"""

from __future__ import annotations

import argparse
import json
import math
import re
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from transformers.models.paligemma.modeling_paligemma import PaliGemmaForConditionalGeneration

from clue_ros.errors import ClueError
from clue_ros.lab.language.vocabulary import vocabulary
from clue_ros.lab.language.words import plural
from clue_ros.lab.simulator.worlds import DEFAULT_WORLD, world_spec
from clue_ros.lab.training.datasets import (
    add_data_arguments,
    add_via_argument,
    all_kinds,
    data_notes,
    load_training_data,
)
from clue_ros.lab.training.decoder import Teaching, init_decoder, train_decoder
from clue_ros.lab.training.loop import Settings
from clue_ros.lab.training.parallel import add_speed_arguments, pick_device, speed_of
from clue_ros.lab.training.vision import LOC_BINS, load_tower, train_vision
from clue_ros.model.backbone import load_backbone, quietly
from clue_ros.model.config import half_depth_block, tiny_config
from clue_ros.model.loading import find_base, find_model, fingerprint
from clue_ros.model.prompts import build_processor, build_tokenizer, load_processor

# -------------------------------------------------------------------------------------------------
# Where a base's training starts from: another base of the same widths (`clue train base
# --init`).

_POSITIONS = "position_embedding.weight"
_WORDS = "embed_tokens.weight"  # and the output layer, which is tied to it
_BLOCK = re.compile(r"(?P<of>.*\.layers\.)(?P<i>\d+)(?P<part>\..*)")
# What each residual branch of a new block ends in, and with what it adds nothing. Gemma's norms
# multiply by one plus their weight.
_ENDS = {
    "post_attention_layernorm.weight": -1.0,
    "post_feedforward_layernorm.weight": -1.0,
    "self_attn.out_proj.weight": 0.0,
    "self_attn.out_proj.bias": 0.0,
    "mlp.fc2.weight": 0.0,
    "mlp.fc2.bias": 0.0,
}


def blocks_from(there: int, here: int) -> dict[int, int]:
    """Which of `there` blocks each of `here` begins as; a new one is missing.

    New ones end each half, so that the block that the detector reads stays at half depth.
    """
    read, reads = half_depth_block(there), half_depth_block(here)
    return {i: i for i in range(read)} | {reads + i: read + i for i in range(there - read)}


@torch.no_grad()
def adopt(model: Any, tokenizer: Any, source: str) -> int:
    """Copy the weights of the model `source` (a name or folder) into `model`, tokens by their text.

    `model` may have more blocks, which begin as identity, and another number of patches. Returns
    how many of the tokenizer's tokens the source knows; the rows of others stay as they are. Raises
    ClueError where a weight's size is another or the source has more blocks, ModelError where there
    is no model.
    """
    folder = find_base(find_model(source))
    other = load_backbone(folder).model
    theirs = load_processor(folder).tokenizer
    kept = dict(other.named_parameters())
    blocks = _blocks(other.config, model.config, source)
    for name, p in model.named_parameters():
        if name.endswith(_WORDS):
            continue
        of = _name_there(name, blocks)
        if of is None:
            _add_nothing(name, p)
            continue
        weight = kept.get(of)
        if weight is not None and name.endswith(_POSITIONS):
            weight = at_other_places(weight, len(p))
        if weight is None or weight.shape != p.shape:
            found = "nothing" if weight is None else tuple(weight.shape)
            raise ClueError(f"--init {source}: {name} is {found} there, here {tuple(p.shape)}")
        p.copy_(weight)
    rows, known = other.get_input_embeddings().weight, theirs.get_vocab()
    mine = model.get_input_embeddings().weight
    if rows.shape[1] != mine.shape[1]:
        raise ClueError(f"--init {source}: width {rows.shape[1]} there, here {mine.shape[1]}")
    shared = [(i, known[token]) for token, i in tokenizer.get_vocab().items() if token in known]
    to, fro = torch.tensor(shared).T
    mine[to] = rows[fro]
    return len(shared)


def at_other_places(positions: Tensor, count: int) -> Tensor:
    """Position embeddings (N, width) of a square grid of patches at those of another, `count`."""
    there, here = math.isqrt(len(positions)), math.isqrt(count)
    if there == here:
        return positions
    grid = positions.T.reshape(1, -1, there, there)
    resized = F.interpolate(grid, (here, here), mode="bicubic", align_corners=False)
    return resized.flatten(2)[0].T


def _blocks(other: Any, config: Any, source: str) -> dict[bool, dict[int, int]]:
    """`blocks_from` of the decoder (False) and of the vision tower (True)."""
    blocks = {}
    for tower, part in ((False, "text_config"), (True, "vision_config")):
        there, here = (getattr(c, part).num_hidden_layers for c in (other, config))
        if there > here:
            name = "vision tower" if tower else "decoder"
            raise ClueError(f"--init {source}: {there} blocks in its {name}, more than {here} here")
        blocks[tower] = blocks_from(there, here)
    return blocks


def _name_there(name: str, blocks: dict[bool, dict[int, int]]) -> str | None:
    """The parameter of the source that `name` begins as; None: of a new block."""
    found = _BLOCK.fullmatch(name)
    if found is None:
        return name
    of = blocks["vision_tower" in name].get(int(found["i"]))
    return None if of is None else f"{found['of']}{of}{found['part']}"


def _add_nothing(name: str, p: Tensor) -> None:
    """Fill what ends a new block's residual branches, so that they add nothing at first."""
    for end, value in _ENDS.items():
        if name.endswith(end):
            p.fill_(value)


def location_table(model: Any, tokenizer: Any) -> Tensor:
    """The embeddings of the location tokens, (1024, width)."""
    first = tokenizer.convert_tokens_to_ids("<loc0000>")
    table: Tensor = model.get_input_embeddings().weight[first : first + LOC_BINS]
    return table.detach().clone()


def described(source: str | None) -> dict[str, str | None]:
    """What a run's notes say of its start: its name, and what it is made of."""
    made_of = None if source is None else fingerprint(find_base(find_model(source)))
    return {"init": source, "init_fingerprint": made_of}


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
