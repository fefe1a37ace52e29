# Copyright 2026 clue_ros contributors
# SPDX-License-Identifier: Apache-2.0
"""A complete model: processor, backbone, both adapters, detector, settings.

Its folder holds:

config.json model.safetensors tokenizer and processor files   the base
detector/   adapter A, head.safetensors, detector.json, fusion.json (policy "both", `fusion`)
ivg/        adapter B, ivg.json
joint/      one adapter for both, with all of these files; where it is, neither of them is needed
mask_decoder.safetensors   PaliGemma's mask decoder (`mask_decoder`), may be missing
box_head.safetensors       boxes of objects without words (`box_head`), may be missing
box_head.json              their score (`ranking`), fitted on photographs, may be missing
"""

from __future__ import annotations

import hashlib
import math
import warnings
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from clue_ros.dialogue.types import Box
from clue_ros.errors import ClueWarning, ModelError
from clue_ros.model.backbone import DETECTOR, IVG, JOINT, Array, Attention, Backbone, grid_side
from clue_ros.model.box_head import BoxHead, load_box_head
from clue_ros.model.config import read_config
from clue_ros.model.decoding import (
    Generation,
    Mode,
    Prefill,
    Vocabulary,
    forced,
    question_share,
    rate_boxes,
    read_prompts,
    reply_to,
)
from clue_ros.model.details import detailed_pictures, details_in
from clue_ros.model.detector import (
    HEAD_FILE,
    Detector,
    check_trusted,
    has_module,
    load_detector,
    load_settings,
)
from clue_ros.model.detector import SETTINGS_FILE as DETECTOR_FILE
from clue_ros.model.detector_baselines import BASELINES, FIRST_TOKEN
from clue_ros.model.devices import choose_backend
from clue_ros.model.fusion import Fusion, load_fusion, weights_digest
from clue_ros.model.load_options import OPENVINO, TORCH, LoadOptions
from clue_ros.model.loading import (
    MASK_DECODER,
    find_base,
    find_model,
    fingerprint,
    is_number,
    read_json,
    read_settings,
    write_json,
)
from clue_ros.model.location_tokens import encode_box
from clue_ros.model.multi_view import MAX_VIEWS
from clue_ros.model.preflight import require
from clue_ros.model.prompts import (
    LeanProcessor,
    decode_text,
    encode_prompts,
    escape,
    open_processor,
    prepare_images,
)
from clue_ros.model.quantization import check_quantization
from clue_ros.model.ranking import BoxScore, load_box_score
from clue_ros.model.zero_shot import ZeroShotSettings, load_zero_shot

if TYPE_CHECKING:
    from clue_ros.model.mask_decoder import MaskDecoder

SETTINGS_FILE = "ivg.json"
MOST_TOKENS = 1024  # of a reply, and boxes of one
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
        if limit > MOST_TOKENS:
            raise ModelError(f"{path}: {name} {limit!r}, want {MOST_TOKENS} at most")
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

    One image and one sentence at a time. base, dialogue: the folders of the base and of adapter B.
    """

    processor: Any
    backbone: Backbone
    detector_or_none: Detector | None
    ivg: IvgSettings
    vocabulary: Vocabulary
    base: Path
    dialogue: Path
    fusion: Fusion | None = None  # fitted for this pair of adapters
    has_detector: bool = True  # adapter A, or a detector that the caller named
    stale_fusion: str = ""  # why the fit in the model's folder cannot be used, or empty
    mask_decoder: MaskDecoder | None = None
    zero_shot: ZeroShotSettings = field(default_factory=ZeroShotSettings)
    judging: Path | None = None  # the folder of adapter A
    folder: Path | None = None  # the model's
    box_head: BoxHead | None = None
    box_score: BoxScore | None = None

    @cached_property
    def digest(self) -> str:
        """Hex SHA-256 of the files of the base and of both adapters' weights."""
        judging = "" if self.judging is None else weights_digest(self.judging)
        return hashlib.sha256(f"{self.fingerprint()} {judging}".encode()).hexdigest()

    @property
    def is_joint(self) -> bool:
        """Whether one adapter judges and replies (`clue train joint`), in one pass."""
        if self.detector_or_none is None:
            return False
        reader = self.detector_or_none.reader
        return reader.adapter == IVG and reader.cnn is not None

    @property
    def policies(self) -> tuple[str, ...]:
        """The policies that these adapters allow, the best one last."""
        names = [ZERO_SHOT]
        if self.detector_or_none is not None:
            names.append("detector")
        if IVG in self.backbone.adapters:
            names.append("decoder")
        if self.has_detector and IVG in self.backbone.adapters:
            # Figure 2 of the paper while nothing says how far to trust the decoder's first token.
            names = [ZERO_SHOT, "decoder", "detector"] if self.fusion is None else [*names, "both"]
        return tuple(names)

    @property
    def detector(self) -> Detector:
        """The ambiguity detector. Raises ModelError where there is none."""
        if self.detector_or_none is None:
            raise ModelError(NO_DETECTOR)
        return self.detector_or_none

    @property
    def grid(self) -> int:
        """Side of the attention map in image patches."""
        return grid_side(self.backbone.config)

    def look(self, *images: npt.NDArray[np.uint8]) -> Array:
        """Images, uint8 RGB (H, W, 3) each -> features (n, N, D)."""
        return look_at(self.backbone, self.processor, images)

    def judge(self, features: Array, context: str) -> tuple[float, Array]:
        """Probability that `context` is ambiguous, and the attention map (grid, grid) in 0..1.

        Raises ModelError.
        """
        chances, maps = self.detector(features, self.detector.prompts(self.processor, [context]))
        return _finite(chances[0], maps[0]), maps[0]

    def judge_and_read(self, features: Array, context: str) -> tuple[float, Array, Prefill | None]:
        """Return the result of `judge`, and the context as a joint adapter has read it."""
        if not self.is_joint:
            return *self.judge(features, context), None
        found, prefill = self._joint(features, context)
        assert found.probability is not None
        return _finite(found.probability[0], found.map[0]), found.map[0], prefill

    def chances(
        self, detector: Detector, image: npt.NDArray[np.uint8], contexts: Sequence[str]
    ) -> list[float]:
        """Another detector's probabilities of several contexts about one RGB (H, W, 3) image."""
        prompts = detector.prompts(self.processor, contexts)
        return [float(chance) for chance in detector(self.look(image), prompts)[0]]

    def fingerprint(self) -> str:
        """Hex SHA-256 of the files of the base and of adapter B."""
        whole = f"{fingerprint(self.base)} {weights_digest(self.dialogue)}"
        return hashlib.sha256(whole.encode()).hexdigest()

    def second_opinion(self, features: Array, context: str) -> tuple[float, Prefill]:
        """Probability that adapter B opens with a question, and its prefill, for `speak`."""
        prefill = self.read(features, context)
        return self.question_share(prefill), prefill

    def question_share(self, prefill: Prefill) -> float:
        """Probability that adapter B, having read this, opens with a question."""
        return float(question_share(self.vocabulary, prefill)[0])

    def opinions(self, features: Array, context: str) -> tuple[list[tuple[float, float]], Prefill]:
        """What detector and adapter B think of `context` in each image of features (n, N, D).

        Returns the probabilities that `judge` and `second_opinion` give, and adapter B's prefill,
        for `point`.
        """
        if self.is_joint:
            found, prefill = self._joint(features, context)
            assert found.probability is not None
            detector = found.probability.tolist()
        else:
            prompts = self.detector.prompts(self.processor, [context] * len(features))
            detector = self.detector(features, prompts)[0].tolist()
            prefill = self.read(features, context)
        decoder = question_share(self.vocabulary, prefill).tolist()
        return list(zip(detector, decoder, strict=True)), prefill

    def speak(
        self, features: Array, context: str, mode: Mode, prefill: Prefill | None = None
    ) -> Generation:
        """Decode one reply to `context` through adapter B.

        prefill: this context, if adapter B has read it already.
        """
        return self._speak(features, context, mode, prefill)[0]

    def point(
        self, features: Array, context: str, prefill: Prefill | None = None
    ) -> list[Generation]:
        """The grounding of `context` through adapter B in each image of features (n, N, D).

        prefill: as in `speak`.
        """
        return self._speak(features, context, "grounding", prefill)

    def _speak(
        self, features: Array, context: str, mode: Mode, prefill: Prefill | None
    ) -> list[Generation]:
        prefill = prefill or self.read(features, context)
        return reply_to(
            self.backbone,
            self.vocabulary,
            prefill,
            mode,
            max_new_tokens=self.ivg.max_new_tokens,
            max_boxes=self.ivg.max_boxes,
        )

    def rate(self, prefill: Prefill, codes: npt.NDArray[np.int64]) -> Array:
        """Return adapter B's log-probabilities of N boxes in B views: see `decoding.rate_boxes`."""
        return rate_boxes(self.backbone, self.vocabulary, prefill, codes)

    def segment(
        self, features: Array, noun: str, box: Box, width: int, height: int
    ) -> tuple[int, ...]:
        """The base's sixteen segment tokens for "segment NOUN" in a box of a (height, width) image.

        The base answers without an adapter: segmentation is one of PaliGemma's own tasks. Its box
        is replaced by the given one, which the dialogue led to.
        """
        prompts = encode_prompts(self.processor, SEGMENT, [noun or "object"])
        prefill = read_prompts(self.backbone, features, prompts, None)
        codes = encode_box(box, width, height)
        (said,) = reply_to(self.backbone, self.vocabulary, prefill, "segment", box=codes)
        return said.segments

    def read(self, features: Array, context: str) -> Prefill:
        """A context as adapter B has read it, once for each image of features (n, N, D)."""
        if IVG not in self.backbone.adapters:
            raise ModelError(NO_ADAPTER_B)
        if self.is_joint:  # the same graphs as for both
            return self._joint(features, context)[1]
        contexts = [context] * len(features)
        prompts = encode_prompts(self.processor, self.ivg.instruction, contexts)
        return read_prompts(self.backbone, features, prompts, IVG)

    def _joint(self, features: Array, context: str) -> tuple[Attention, Prefill]:
        """A context as a joint adapter has read it, and where its words look."""
        prompts = self.detector.prompts(self.processor, [context] * len(features))
        reader = self.detector.reader
        found, state, logits = self.backbone.attend_and_read(features, prompts, reader)
        return found, Prefill(logits, state)

    def forced(self, features: Array, context: str, question: str) -> tuple[float, int, int]:
        """Teacher forcing: how likely adapter B finds a question to a context.

        Returns, over the question and its <eos>: the summed cross-entropy in nats, the number of
        tokens that were the likeliest, and the number of tokens.
        """
        tokenizer = self.processor.tokenizer
        text = escape(question, tokenizer) + tokenizer.eos_token
        tokens = tokenizer(text, add_special_tokens=False)["input_ids"]
        (likely,), (first,) = forced(self.backbone, self.read(features, context), [tokens])
        right = int((first == np.array(tokens)).sum())
        return float(-likely.sum()), right, len(tokens)

    def words(self, generation: Generation) -> str:
        """The sentence of a generation."""
        return decode_text(self.processor.tokenizer, generation.tokens)

    def memory_bytes(self) -> int:
        """Bytes of all weights."""
        judge = self.detector_or_none
        cnn = judge.reader.cnn if judge is not None else None
        head = sum(array.nbytes for array in cnn.values()) if cnn else 0
        masks = self.mask_decoder.memory_bytes() if self.mask_decoder else 0
        boxes = self.box_head.nbytes() if self.box_head else 0
        return self.backbone.memory_bytes() + head + masks + boxes


def _finite(chance: float, attention: Array) -> float:
    """The probability. Raises ModelError for one that is none, and for a map with such values."""
    if not math.isfinite(chance) or not np.isfinite(attention).all():
        raise ModelError("the detector's output is not a number: its weights are broken")
    return float(chance)


def look_at(backbone: Backbone, processor: Any, images: Sequence[npt.NDArray[np.uint8]]) -> Array:
    """Images, uint8 RGB (H, W, 3) each -> features (n, N, D)."""
    details = details_in(backbone.config.vision_config)
    detailed = [] if details is None else detailed_pictures(images, details.side)
    return backbone.look(prepare_images(processor, images), detailed)


def load_checkpoint(model: str | Path | LoadOptions, **settings: Any) -> Checkpoint:
    """Load a model; settings: attributes of `LoadOptions`. What decides is not looked at.

    Raises ModelError on anything wrong.
    """
    options = LoadOptions.of(model, settings)
    check_quantization(options.quantization)
    require(options)
    folder = find_model(options.model, options.revision)
    base, detector = find_base(folder), options.detector
    if options.backend == "auto" and _has_learned_word(Path(detector or folder / DETECTOR)):
        options = replace(options, backend=TORCH)
    backbone = open_backbone(base, options)
    processor = open_processor(base)
    check_processor(processor, backbone.config, base)
    own = folder / JOINT
    if detector is None and options.ivg is None and own.is_dir():
        detector = dialogue = own
    else:
        dialogue = folder / IVG
        if options.ivg is not None:
            dialogue = existing_folder(options.ivg, "adapter B")
    joint = _same_folder(detector, dialogue)
    has_detector = detector is not None or (folder / DETECTOR).is_dir()
    if not has_detector and dialogue.is_dir():
        detector = FIRST_TOKEN  # adapter B alone: its own first token says whether to ask
    trained = Path(detector or folder / DETECTOR).expanduser()
    judge = None
    if has_detector or detector is not None:
        adapter = IVG if joint else DETECTOR
        judge = open_detector(
            backbone, processor, detector or trained, adapter=adapter, head=options.head
        )
    ivg = IvgSettings()
    if dialogue.is_dir():
        ivg = load_ivg_settings(dialogue)
        if joint:
            assert judge is not None
            _check_joint(judge, ivg, dialogue)
        else:
            backbone.load_adapter(IVG, dialogue)
    try:
        vocabulary = Vocabulary(processor.tokenizer, backbone.config.text_config.vocab_size)
    except ValueError as error:
        raise ModelError(f"{base}: the tokenizer is not PaliGemma's, {error}") from error
    fusion, stale = None if str(detector) in BASELINES else load_fusion(trained), ""
    if fusion is not None and not fusion.fits(trained, dialogue):
        fusion = None
        if options.detector is None and options.ivg is None:  # a caller's pair was never fitted
            stale = (
                f"{trained}: policy 'both' was fitted with other weights than {trained} and"
                f" {dialogue} hold now: fit it again (clue train policy --model {folder}), or"
                " choose policy 'detector' or 'decoder'"
            )
    return Checkpoint(
        processor,
        backbone,
        judge,
        ivg,
        vocabulary,
        base,
        dialogue,
        fusion,
        has_detector,
        stale,
        open_mask_decoder(options.mask_decoder, vocabulary, folder, base),
        load_zero_shot(base),
        trained,
        folder,
        load_box_head(base, backbone.config.vision_config),
        load_box_score(base),
    )


def _has_learned_word(folder: Path) -> bool:
    """Whether a detector brings its conditioning word along, which torch alone reads."""
    path = folder.expanduser() / DETECTOR_FILE
    return path.is_file() and read_json(path).get("new_word") is True


def _same_folder(detector: str | Path | None, dialogue: Path) -> bool:
    """Whether one folder holds the adapter that judges and replies."""
    if detector is None or str(detector) in BASELINES or not dialogue.is_dir():
        return False
    return Path(detector).expanduser().resolve() == dialogue.resolve()


def _check_joint(judge: Detector, ivg: IvgSettings, folder: Path) -> None:
    """Raises ModelError for an adapter that cannot judge and reply in one pass."""
    settings = judge.settings
    if settings.head != "cnn" or settings.block < 1 or settings.instruction != ivg.instruction:
        raise ModelError(
            f"{folder} is no joint adapter: it has head {settings.head!r}, block {settings.block}"
            f" and the words {settings.instruction!r} and {ivg.instruction!r}; train one with"
            " `clue train joint`"
        )


def open_backbone(base: Path, options: LoadOptions) -> Backbone:
    """The base of a model in the engine that the options ask for. Raises ModelError.

    "auto": torch where there is a GPU, for another device than the CPU, for quantised weights and
    for a large decoder; else OpenVINO. Where OpenVINO cannot run a model, torch does, with a
    warning.
    """
    if choose_backend(options) == OPENVINO:
        from clue_ros.model.openvino_backbone import (
            OpenVinoBackbone,
            is_left_to_torch,
            unsupported,
        )

        config = read_config(base)
        asked, reason = options.backend == OPENVINO, unsupported(config)
        if not reason and (asked or not is_left_to_torch(config, options.dtype)):
            return OpenVinoBackbone(base, config, options.dtype)
        if asked:
            raise ModelError(f"OpenVINO cannot run {base}: {reason}")
        if reason:
            warnings.warn(f"OpenVINO cannot run {base} ({reason}): torch does", ClueWarning, 3)
    try:
        from clue_ros.model.torch_backbone import open_torch
    except ImportError as error:
        raise ModelError(
            f"this needs torch, transformers and peft ({error}): pip install 'clue_ros[torch]'"
        ) from error
    return open_torch(base, options)


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
    from clue_ros.model.mask_decoder import load_mask_decoder

    return load_mask_decoder(paths[0])


def open_detector(
    backbone: Backbone,
    processor: Any,
    which: str | Path,
    *,
    adapter: str = DETECTOR,
    head: str | None = None,
) -> Detector:
    """A trained detector from its folder, or a baseline by its name. Raises ModelError.

    head: a head of the user's own, MODULE:CLASS, which is imported if the folder's is that one.
    """
    if str(which) in BASELINES:
        try:
            return BASELINES[str(which)](backbone, processor.tokenizer)
        except ValueError as error:
            raise ModelError(f"no detector {which} for this tokenizer: {error}") from error
    folder = existing_folder(which, f"a detector (or one of {', '.join(BASELINES)})")
    text = backbone.config.text_config
    settings, module = load_settings(folder, text.num_hidden_layers), None
    check_trusted(settings.head, head, folder / DETECTOR_FILE)
    if has_module(settings):
        from clue_ros.model.heads import load_head

        tokenizer, new_word = processor.tokenizer, settings.new_word
        module = load_head(folder, settings.head, tokenizer, new_word=new_word)
        word = module.state_dict().get("word")
        if new_word and word is not None and word.shape[1] != text.hidden_size:
            found = f"the word has {word.shape[1]} numbers, want {text.hidden_size}"
            raise ModelError(f"{folder / HEAD_FILE}: {found}")
    return load_detector(backbone, folder, processor.tokenizer, adapter=adapter, head=module)


def existing_folder(path: str | Path, what: str) -> Path:
    """The path, if it is a folder. Raises ModelError saying `what` was looked for."""
    folder = Path(path).expanduser()
    if not folder.is_dir():
        raise ModelError(f"there is no folder {folder} with {what}")
    return folder


def check_processor(processor: Any, config: Any, folder: Path) -> None:
    """The tokenizer and the picture sizes belong to this backbone. Raises ModelError."""
    tokens, vocabulary = grid_side(config) ** 2, config.text_config.vocab_size
    if processor.image_token_id != config.image_token_id:
        raise ModelError(
            f"{folder}: <image> is token {processor.image_token_id} for the tokenizer, "
            f"{config.image_token_id} for config.json"
        )
    if processor.image_seq_length != tokens:
        raise ModelError(
            f"{folder}: the processor makes {processor.image_seq_length} image tokens, the model "
            f"{tokens}"
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
    if max(ids) >= vocabulary:
        raise ModelError(
            f"{folder}: the tokenizer has token {max(ids)}, the model only {vocabulary} tokens"
        )
