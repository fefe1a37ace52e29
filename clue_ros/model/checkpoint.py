# Copyright 2026 clue_ros contributors
# SPDX-License-Identifier: Apache-2.0
"""A complete model: processor, backbone, both adapters, detector, settings.

Its folder holds:

config.json model.safetensors tokenizer and processor files   the base
detector/   adapter A, head.safetensors, detector.json, fusion.json (policy "both", `fusion`)
ivg/        adapter B, ivg.json
mask_decoder.safetensors   PaliGemma's mask decoder (`mask_decoder`), may be missing
"""

from __future__ import annotations

import hashlib
import json
import math
import warnings
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from PIL import Image

from clue_ros.dialogue.types import Box
from clue_ros.errors import ClueWarning, ModelError
from clue_ros.model.adapters import DETECTOR, IVG, Adapters
from clue_ros.model.backbone import Backbone, load_backbone
from clue_ros.model.decoding import (
    Generation,
    Mode,
    Prefill,
    Vocabulary,
    question_share,
    read_prompts,
    reply_to,
)
from clue_ros.model.detector import Detector, load_detector
from clue_ros.model.detector_baselines import BASELINES, FIRST_TOKEN
from clue_ros.model.devices import choose_device, choose_dtype, wants_mixed
from clue_ros.model.exported import is_export, open_export
from clue_ros.model.fusion import Fusion, load_fusion
from clue_ros.model.lean import LeanAdapters, open_lean
from clue_ros.model.load_options import LoadOptions
from clue_ros.model.loading import (
    MASK_DECODER,
    find_base,
    find_model,
    is_number,
    read_settings,
    write_json,
)
from clue_ros.model.location_tokens import encode_box
from clue_ros.model.mask_decoder import MaskDecoder, load_mask_decoder
from clue_ros.model.multi_view import MAX_VIEWS
from clue_ros.model.preflight import require
from clue_ros.model.prompts import (
    LeanProcessor,
    Prompts,
    decode_text,
    encode_prompts,
    escape,
    open_processor,
)
from clue_ros.model.quantization import (
    NONE,
    check_quantization,
    give_back,
    is_out_of_memory,
    out_of_memory,
    with_room,
)
from clue_ros.model.zero_shot import ZeroShotSettings, load_zero_shot

SETTINGS_FILE = "ivg.json"
SEGMENT = "segment"  # PaliGemma's instruction for a mask


@dataclass
class IvgSettings:
    """ivg.json: how adapter B (the dialogue, section III-A) is asked and what it may reply.

    instruction: its conditioning word. max_new_tokens: of a question. max_boxes: of a grounding,
    the last of which is meant; the paper has 1. num_views: augmented views of an image whose boxes
    are averaged; the paper has 1. doubtful_score: the further views are looked at only where the
    first view's score is at most this; 1: all of them always (`clue train views` fits it).
    """

    instruction: str = "clarify"
    max_new_tokens: int = 48
    max_boxes: int = 1
    num_views: int = 1
    doubtful_score: float = 1.0


def load_ivg_settings(folder: str | Path) -> IvgSettings:
    """Read and check ivg.json. Raises ModelError."""
    path = Path(folder) / SETTINGS_FILE
    settings = read_settings(path, IvgSettings)
    if not isinstance(settings.instruction, str):
        raise ModelError(f"{path}: instruction {settings.instruction!r}, want a word")
    for name in ("max_new_tokens", "max_boxes", "num_views"):
        limit = getattr(settings, name)
        if not is_number(limit, 1) or not isinstance(limit, int):
            raise ModelError(f"{path}: {name} {limit!r}, want a whole number above 0")
    if settings.num_views > MAX_VIEWS:
        raise ModelError(f"{path}: num_views {settings.num_views!r}, want {MAX_VIEWS} at most")
    if not is_number(settings.doubtful_score, 0, 1):
        raise ModelError(f"{path}: doubtful_score {settings.doubtful_score!r}, want 0 to 1")
    return settings


def save_ivg_settings(settings: IvgSettings, folder: str | Path, **notes: Any) -> None:
    """Write ivg.json; `notes` (data, date, scores) are kept beside the settings."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / SETTINGS_FILE, {**notes, **asdict(settings)})


NO_DETECTOR = (
    "this model has no detector (folder detector): policy 'zero-shot' needs none. Train one with"
    " `clue train detector`, or name one (detector=)"
)
NO_ADAPTER_B = (
    "this model has no adapter B (folder ivg): it judges whether a sentence is ambiguous, and can"
    " neither ask nor point. Train it with `clue train ivg`, or name one (ivg=)"
)
ZERO_SHOT = "zero-shot"


@dataclass
class Checkpoint:
    """Everything a running CLUE needs.

    One image and one sentence at a time; training batches use the parts.
    """

    processor: Any
    backbone: Backbone
    adapters: Adapters
    detector_or_none: Detector | None
    ivg: IvgSettings
    vocabulary: Vocabulary
    fusion: Fusion | None = None  # fitted for this pair of adapters
    has_detector: bool = True  # adapter A, or a detector that the caller named
    stale_fusion: str = ""  # why the fit in the model's folder cannot be used, or empty
    mask_decoder: MaskDecoder | None = None
    zero_shot: ZeroShotSettings = field(default_factory=ZeroShotSettings)

    @property
    def policies(self) -> tuple[str, ...]:
        """The policies that these adapters allow, the best one last."""
        names = [ZERO_SHOT]
        if self.detector_or_none is not None:
            names.append("detector")
        if IVG in self.adapters.names:
            names.append("decoder")
        if self.has_detector and IVG in self.adapters.names:
            # Figure 2 of the paper while nothing says how far to trust the decoder's first token.
            names = [ZERO_SHOT, "decoder", "detector"] if self.fusion is None else [*names, "both"]
        return tuple(names)

    @property
    def detector(self) -> Detector:
        """The ambiguity detector. Raises ModelError where there is none."""
        if self.detector_or_none is None:
            raise ModelError(NO_DETECTOR)
        return self.detector_or_none

    @with_room
    @torch.inference_mode()
    def look(self, *images: npt.NDArray[np.uint8]) -> torch.Tensor:
        """Images, uint8 RGB (H, W, 3) each -> features (n, N, D) on the model's device."""
        if isinstance(self.processor, LeanProcessor):
            return self.backbone.look(self.processor.pixels(images))
        opened = [Image.fromarray(image) for image in images]
        pixels = self.processor.image_processor(opened, return_tensors="pt")
        return self.backbone.look(pixels["pixel_values"])

    @with_room
    @torch.inference_mode()
    def judge(self, features: torch.Tensor, context: str) -> tuple[float, npt.NDArray[np.float32]]:
        """Probability that `context` is ambiguous, and the attention map (grid, grid) in 0..1.

        Raises ModelError.
        """
        chances, maps = self.detector(features, self.detector.prompts(self.processor, [context]))
        chance = float(chances[0])
        if not math.isfinite(chance):
            raise ModelError("the detector's output is not a number: its weights are broken")
        return chance, maps[0].float().cpu().numpy()

    @torch.inference_mode()
    def chances(
        self, detector: Detector, image: npt.NDArray[np.uint8], contexts: Sequence[str]
    ) -> list[float]:
        """Another detector's probabilities of several contexts about one RGB (H, W, 3) image."""
        prompts = detector.prompts(self.processor, contexts)
        return [float(chance) for chance in detector(self.look(image), prompts)[0]]

    @torch.no_grad()
    def fingerprint(self) -> str:
        """Hex SHA-256 of two sums of each weight tensor of the base and adapter B.

        Sums are quick for billions of weights.
        """
        parts = [
            (name, float(weight.float().sum()), float(weight.float().abs().sum()))
            for name, weight in self.backbone.model.named_parameters()
            if "lora" not in name or f".{IVG}." in name
        ]
        return hashlib.sha256(json.dumps(sorted(parts)).encode()).hexdigest()

    @with_room
    def second_opinion(self, features: torch.Tensor, context: str) -> tuple[float, Prefill]:
        """Probability that adapter B opens with a question, and its prefill, for `speak`."""
        prefill = self._read(features, context)
        return float(question_share(self.vocabulary, prefill)[0]), prefill

    @with_room
    @torch.inference_mode()
    def opinions(
        self, features: torch.Tensor, context: str
    ) -> tuple[list[tuple[float, float]], Prefill]:
        """What detector and adapter B think of `context` in each image of features (n, N, D).

        Returns the probabilities that `judge` and `second_opinion` give, and adapter B's prefill,
        for `point`.
        """
        prompts = self.detector.prompts(self.processor, [context] * len(features))
        detector = self.detector(features, prompts)[0].tolist()
        prefill = self._read(features, context)
        decoder = question_share(self.vocabulary, prefill).tolist()
        return list(zip(detector, decoder, strict=True)), prefill

    def speak(
        self, features: torch.Tensor, context: str, mode: Mode, prefill: Prefill | None = None
    ) -> Generation:
        """Decode one reply to `context` through adapter B.

        prefill: this context, if adapter B has read it already; it can be used once.
        """
        left = [prefill] if prefill is not None else []
        return self._speak(features, context, mode, left)[0]

    def point(
        self, features: torch.Tensor, context: str, prefill: Prefill | None = None
    ) -> list[Generation]:
        """The grounding of `context` through adapter B in each image of features (n, N, D).

        prefill: as in `speak`.
        """
        return self._speak(features, context, "grounding", [] if prefill is None else [prefill])

    @with_room
    def _speak(
        self, features: torch.Tensor, context: str, mode: Mode, left: list[Prefill]
    ) -> list[Generation]:
        # What ran out of memory half-way has spoiled its prefill: the second try reads again.
        prefill = left.pop() if left else self._read(features, context)
        self.adapters.use(IVG)
        return reply_to(
            self.backbone,
            self.vocabulary,
            prefill,
            mode,
            max_new_tokens=self.ivg.max_new_tokens,
            max_boxes=self.ivg.max_boxes,
        )

    @with_room
    def segment(
        self, features: torch.Tensor, noun: str, box: Box, width: int, height: int
    ) -> tuple[int, ...]:
        """The base's sixteen segment tokens for "segment NOUN" in a box of a (height, width) image.

        The base answers without an adapter: segmentation is one of PaliGemma's own tasks. Its box
        is replaced by the given one, which the dialogue led to.
        """
        self.adapters.use(None)
        prompts = encode_prompts(self.processor, SEGMENT, [noun or "object"])
        prefill = read_prompts(self.backbone, features, prompts.to(self.backbone.device))
        codes = encode_box(box, width, height)
        (said,) = reply_to(self.backbone, self.vocabulary, prefill, "segment", box=codes)
        return said.segments

    def _read(self, features: torch.Tensor, context: str) -> Prefill:
        """A context as adapter B has read it, once for each image of features (n, N, D)."""
        prompts = self._prompts([context] * len(features))
        return read_prompts(self.backbone, features, prompts)

    def _prompts(self, contexts: Sequence[str], suffixes: Sequence[str] | None = None) -> Prompts:
        """Prompts for adapter B, which becomes the active one."""
        if IVG not in self.adapters.names:
            raise ModelError(NO_ADAPTER_B)
        self.adapters.use(IVG)
        prompts = encode_prompts(self.processor, self.ivg.instruction, contexts, suffixes)
        return prompts.to(self.backbone.device)

    @torch.inference_mode()
    def forced(self, features: torch.Tensor, context: str, question: str) -> tuple[float, int, int]:
        """Teacher forcing: how likely adapter B finds a question to a context.

        Returns, over the question and its <eos>: the summed cross-entropy in nats, the number of
        tokens that were the likeliest, and the number of tokens.
        """
        prompts = self._prompts([context], [escape(question, self.processor.tokenizer)])
        hidden, _ = self.backbone.forward(features, prompts)
        labels = prompts.labels[:, 1:]
        asked = labels != -100
        logits, targets = self.backbone.logits(hidden[:, :-1][asked]), labels[asked]
        loss = torch.nn.functional.cross_entropy(logits, targets, reduction="sum")
        return float(loss), int((logits.argmax(-1) == targets).sum()), int(asked.sum())

    def words(self, generation: Generation) -> str:
        """The sentence of a generation."""
        return decode_text(self.processor.tokenizer, generation.tokens)

    def memory_bytes(self) -> int:
        """Bytes of all weights."""
        judge = self.detector_or_none
        weights = judge.head.parameters() if judge is not None else ()
        head = sum(p.numel() * p.element_size() for p in weights)
        masks = self.mask_decoder.memory_bytes() if self.mask_decoder else 0
        return self.backbone.memory_bytes() + head + masks


def load_checkpoint(model: str | Path | LoadOptions, **settings: Any) -> Checkpoint:
    """Load a model; settings: attributes of `LoadOptions`. What decides is not looked at.

    Where device "auto" finds a GPU that the model does not fit into, it goes to the CPU, with a
    warning. Raises ModelError on anything wrong.
    """
    options = LoadOptions.of(model, settings)
    check_quantization(options.quantization)
    place = choose_device(options.device)
    require(options)
    folder = find_model(options.model, options.revision)
    try:
        return _load(folder, place, options)
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
    give_back()
    if options.device != "auto" or place.type == "cpu":
        raise out_of_memory(place)
    warnings.warn(f"{out_of_memory(place)}. It runs on the CPU, slowly", ClueWarning, 2)
    return _load(folder, torch.device("cpu"), options)


def _load(folder: Path, place: torch.device, options: LoadOptions) -> Checkpoint:
    """A folder's model on a device, or torch's error if that has too little memory."""
    base, detector = find_base(folder), options.detector
    given = ((DETECTOR, detector), (IVG, options.ivg))
    own = tuple(name for name, path in given if path is None)
    backbone, adapters = _open(base, place, options, own if folder == base else ())
    processor = open_processor(base)
    check_processor(processor, backbone, base)
    dialogue = folder / IVG if options.ivg is None else existing_folder(options.ivg, "adapter B")
    has_detector = detector is not None or (folder / DETECTOR).is_dir()
    if not has_detector and dialogue.is_dir():
        detector = FIRST_TOKEN  # adapter B alone: its own first token says whether to ask
    trained = Path(detector or folder / DETECTOR).expanduser()
    judge = None
    if has_detector or detector is not None:
        judge = open_detector(backbone, adapters, processor, detector or trained)
    settings = IvgSettings()
    if dialogue.is_dir():
        settings = load_ivg_settings(dialogue)
        adapters.load(IVG, dialogue)
    try:
        vocabulary = Vocabulary(processor.tokenizer, backbone.text.vocab_size, place)
    except ValueError as error:
        raise ModelError(f"{base}: the tokenizer is not PaliGemma's, {error}") from error
    fusion, stale = None if str(detector) in BASELINES else load_fusion(trained), ""
    if fusion is not None and not fusion.fits(trained, dialogue):
        fusion = None
        if own == (DETECTOR, IVG):  # a pair of the caller's own choice was never fitted
            stale = (
                f"{trained}: policy 'both' was fitted with other weights than {trained} and"
                f" {dialogue} hold now: fit it again (clue train policy --model {folder}), or"
                " choose policy 'detector' or 'decoder'"
            )
    return Checkpoint(
        processor,
        backbone,
        adapters,
        judge,
        settings,
        vocabulary,
        fusion,
        has_detector,
        stale,
        open_mask_decoder(options.mask_decoder, vocabulary, folder, base),
        load_zero_shot(base),
    )


def _open(
    base: Path, place: torch.device, options: LoadOptions, own: Sequence[str]
) -> tuple[Backbone, Adapters]:
    """A base without transformers' and peft's classes where that is possible, and its adapters.

    own: the adapters that will be those in the base's folder, if it has them.
    """
    dtype, plain = options.dtype, options.quantization == NONE
    if plain and place.type == "cpu" and is_export(base):
        exported = open_export(base, dtype, own)
        return exported, LeanAdapters(exported)
    kind, mixed = choose_dtype(dtype, place), wants_mixed(dtype, place)
    lean = open_lean(base, place, kind, mixed=mixed) if plain else None
    if lean is not None:
        return lean, LeanAdapters(lean)
    backbone = load_backbone(base, device=place, dtype=kind, quantization=options.quantization)
    return backbone, Adapters(backbone)


def open_mask_decoder(
    path: str | Path | None, vocabulary: Vocabulary, *folders: Path
) -> MaskDecoder | None:
    """The mask decoder of a file, else of the first of the folders that has one, else None.

    Raises ModelError for one that cannot be used.
    """
    own = [folder / MASK_DECODER for folder in folders if (folder / MASK_DECODER).is_file()]
    paths = [path] if path is not None else own
    if not paths:
        return None
    if vocabulary.first_segment is None:
        raise ModelError(f"{paths[0]}: this model's tokenizer has no segment tokens to decode")
    return load_mask_decoder(paths[0])


def open_detector(
    backbone: Backbone,
    adapters: Adapters,
    processor: Any,
    which: str | Path,
    *,
    adapter: str = DETECTOR,
) -> Detector:
    """A trained detector from its folder, or a baseline by its name. Raises ModelError."""
    if str(which) in BASELINES:
        try:
            return BASELINES[str(which)](backbone, adapters, processor.tokenizer)
        except ValueError as error:
            raise ModelError(f"no detector {which} for this tokenizer: {error}") from error
    folder = existing_folder(which, f"a detector (or one of {', '.join(BASELINES)})")
    return load_detector(backbone, adapters, folder, processor.tokenizer, adapter=adapter)


def existing_folder(path: str | Path, what: str) -> Path:
    """The path, if it is a folder. Raises ModelError saying `what` was looked for."""
    folder = Path(path).expanduser()
    if not folder.is_dir():
        raise ModelError(f"there is no folder {folder} with {what}")
    return folder


def check_processor(processor: Any, backbone: Backbone, folder: Path) -> None:
    """The tokenizer and the picture sizes belong to this backbone. Raises ModelError."""
    config = backbone.config
    if processor.image_token_id != config.image_token_id:
        raise ModelError(
            f"{folder}: <image> is token {processor.image_token_id} for the tokenizer, "
            f"{config.image_token_id} for config.json"
        )
    if processor.image_seq_length != backbone.grid**2:
        raise ModelError(
            f"{folder}: the processor makes {processor.image_seq_length} image tokens, the model "
            f"{backbone.grid**2}"
        )
    lean = isinstance(processor, LeanProcessor)
    size = processor.image_size if lean else processor.image_processor.size
    side = config.vision_config.image_size
    if (size["height"], size["width"]) != (side, side):
        raise ModelError(
            f"{folder}: the processor makes {size['height']}x{size['width']} pictures, the model "
            f"takes {side}x{side}"
        )
    ids = [i for i in processor.tokenizer.get_vocab().values() if i != config.image_token_id]
    if max(ids) >= backbone.text.vocab_size:
        raise ModelError(
            f"{folder}: the tokenizer has token {max(ids)}, the model only "
            f"{backbone.text.vocab_size} tokens"
        )
