# Copyright 2026 clue_ros contributors
# SPDX-License-Identifier: Apache-2.0
r"""Text and pictures in PaliGemma's format (the paper's section III-A.1).

One processor class for every model: transformers' PaliGemmaProcessor. The embedded model brings its
own small word-level tokenizer in the same layout, so that nothing downstream knows which one it
holds. A prompt is

    <image> * N  <bos>  prefix  "\n"  [suffix  <eos>]

with token_type_ids 0 up to the newline (bidirectional attention) and 1 over the suffix (causal
attention).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from PIL import Image
from tokenizers import AddedToken, Regex, Tokenizer, models, normalizers, pre_tokenizers

from clue_ros.errors import ModelError
from clue_ros.model.loading import first_line, read_json, require_files

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedTokenizerFast
    from transformers.models.paligemma.processing_paligemma import PaliGemmaProcessor

PAD, EOS, BOS, UNK, MASK, NEWLINE, IMAGE = (
    "<pad>",
    "<eos>",
    "<bos>",
    "<unk>",
    "<mask>",
    "\n",
    "<image>",
)
LOCATIONS = tuple(f"<loc{i:04d}>" for i in range(1024))
SEGMENTS = tuple(f"<seg{i:03d}>" for i in range(128))
PUNCTUATION = tuple(".,?!:;'\"-()/<>[]&%+*=#@")

# A newline, a run of letters and digits, or one other visible character; spaces vanish.
_WORD = r"\n|[^\W_]+|[^\w\s]|_"


def split_words(text: str) -> list[str]:
    """The lower-case words and punctuation marks that our tokenizer makes of `text`."""
    return re.findall(_WORD, text.lower())


def build_tokenizer(words: Sequence[str]) -> PreTrainedTokenizerFast:
    """A word-level, lower-case tokenizer in PaliGemma's layout.

    `words` may hold whole sentences: they are split as the tokenizer splits. Ids: <pad> 0, <eos> 1,
    <bos> 2, <unk> 3, <mask> 4, newline 5, punctuation, the words in alphabetical order,
    <loc0000>.., <seg000>.., and <image> last.
    """
    from transformers import PreTrainedTokenizerFast

    known = {piece for text in words for piece in split_words(text)}
    plain = [NEWLINE, *PUNCTUATION, *sorted(known - {NEWLINE, *PUNCTUATION})]
    pieces = [PAD, EOS, BOS, UNK, MASK, *plain, *LOCATIONS, *SEGMENTS, IMAGE]
    core = Tokenizer(models.WordLevel({piece: i for i, piece in enumerate(pieces)}, unk_token=UNK))
    core.normalizer = normalizers.Lowercase()
    core.pre_tokenizer = pre_tokenizers.Split(Regex(_WORD), behavior="removed", invert=True)
    core.add_tokens([AddedToken(t, normalized=False) for t in (*LOCATIONS, *SEGMENTS)])
    make: Any = PreTrainedTokenizerFast
    tokenizer: PreTrainedTokenizerFast = make(
        tokenizer_object=core,
        pad_token=PAD,
        eos_token=EOS,
        bos_token=BOS,
        unk_token=UNK,
        mask_token=MASK,
        extra_special_tokens={"image_token": IMAGE},
        padding_side="right",
        clean_up_tokenization_spaces=False,
    )
    return tokenizer


def build_processor(
    tokenizer: PreTrainedTokenizerFast, image_size: int, image_seq_length: int
) -> PaliGemmaProcessor:
    """PaliGemmaProcessor with the PIL image processor: RGB, image_size squared, in -1..1."""
    from transformers.models.siglip.image_processing_pil_siglip import SiglipImageProcessorPil

    pictures: Any = SiglipImageProcessorPil(size={"height": image_size, "width": image_size})
    pictures.image_seq_length = image_seq_length
    return _processor(pictures, tokenizer)


def load_processor(folder: str | Path) -> PaliGemmaProcessor:
    """The processor of a model folder. Raises ModelError naming what is missing or broken."""
    folder = Path(folder)
    require_files(folder, "tokenizer.json", "tokenizer_config.json")
    # Older models, the published PaliGemma among them, keep it under the older name.
    if not (folder / "preprocessor_config.json").is_file():
        require_files(folder, "processor_config.json")
    try:
        from transformers import AutoTokenizer
        from transformers.models.siglip.image_processing_pil_siglip import SiglipImageProcessorPil
    except ImportError as error:
        raise ModelError(
            f"the tokenizer or the pictures of {folder} need transformers ({error}):"
            " pip install transformers"
        ) from error
    try:
        # The PIL image processor is named, not looked up, so that pixels do not depend on
        # torchvision being there.
        pictures = SiglipImageProcessorPil.from_pretrained(folder)
        tokenizer = AutoTokenizer.from_pretrained(folder)
        return _processor(pictures, tokenizer)
    except Exception as error:  # any library error here means that the files are unusable
        raise ModelError(f"cannot load the processor in {folder}: {first_line(error)}") from error


def _processor(pictures: Any, tokenizer: Any) -> PaliGemmaProcessor:
    from transformers.models.paligemma.processing_paligemma import PaliGemmaProcessor

    make: Any = PaliGemmaProcessor
    processor: PaliGemmaProcessor = make(image_processor=pictures, tokenizer=tokenizer)
    return processor


class LeanProcessor:
    """What replies need of `load_processor`'s, without importing transformers.

    Called, or asked for anything else, it loads that one.
    """

    def __init__(self, folder: Path, tokenizer: Any, settings: dict[str, Any]) -> None:
        self._folder, self._settings = folder, settings
        self.tokenizer = tokenizer
        self.image_seq_length: int = settings["image_seq_length"]
        # As PaliGemmaProcessor prepares a tokenizer.
        if not hasattr(tokenizer, "image_token"):
            image = AddedToken(IMAGE, normalized=False, special=True)
            tokenizer.add_special_tokens({"additional_special_tokens": [image]})
            self.image_token_id: int = tokenizer.convert_tokens_to_ids(IMAGE)
        else:
            self.image_token_id = tokenizer.image_token_id
        tokenizer.add_tokens([*LOCATIONS, *SEGMENTS])
        tokenizer.add_bos_token = tokenizer.add_eos_token = False
        self.image_size: dict[str, int] = settings["size"]

    def pixels(self, images: Sequence[Any]) -> npt.NDArray[np.float32]:
        """Images, uint8 RGB (H, W, 3) each -> (n, 3, S, S) float32, bit by bit transformers'."""
        size = self.image_size["width"], self.image_size["height"]
        resample, scale = self._settings["resample"], self._settings["rescale_factor"]
        mean, std = (
            np.array(self._settings[name], np.float32) for name in ("image_mean", "image_std")
        )
        levels = (np.arange(256.0) * scale).astype(np.float32)
        values = (levels[:, None] - mean) / std  # of each channel's 256 levels
        out = np.empty((len(images), 3, size[1], size[0]), np.float32)
        for place, image in zip(out, images, strict=True):
            resized = np.asarray(Image.fromarray(image).resize(size, resample=resample))
            for channel, plane in enumerate(place):
                np.take(values[:, channel], resized[..., channel], out=plane, mode="clip")
        return out

    @cached_property
    def whole(self) -> PaliGemmaProcessor:
        """The processor of transformers."""
        return load_processor(self._folder)

    def __call__(self, *args: Any, **settings: Any) -> Any:
        """Return the output of transformers' processor for text and images."""
        return self.whole(*args, **settings)

    def __getattr__(self, name: str) -> Any:
        """Everything else that it has."""
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self.whole, name)


class LeanTokenizer:
    """What replies need of `load_processor`'s tokenizer: the one below it, of package tokenizers.

    special: the special tokens by their names there, such as "bos_token". Asked for anything else,
    it loads that one.
    """

    def __init__(self, folder: Path, core: Tokenizer, special: Mapping[str, str]) -> None:
        self._folder, self._core = folder, core
        core.no_truncation()
        core.no_padding()
        for name, token in special.items():
            setattr(self, name, token)
            setattr(self, f"{name}_id", core.token_to_id(token))
        self.all_special_tokens = list(dict.fromkeys(special.values()))
        self.all_special_ids: list[int] = self.convert_tokens_to_ids(self.all_special_tokens)

    @cached_property
    def whole(self) -> Any:
        """The tokenizer of transformers."""
        return load_processor(self._folder).tokenizer

    def __call__(self, text: Any, *, add_special_tokens: bool = True, **settings: Any) -> Any:
        """A text's "input_ids" and "offset_mapping"."""
        if not isinstance(text, str) or settings.keys() - {"return_offsets_mapping"}:
            return self.whole(text, add_special_tokens=add_special_tokens, **settings)
        found = self._core.encode(text, add_special_tokens=add_special_tokens)
        return {"input_ids": found.ids, "offset_mapping": found.offsets}

    def decode(self, ids: Sequence[int], *, skip_special_tokens: bool = False) -> str:
        """The text of some ids."""
        text: str = self._core.decode([*map(int, ids)], skip_special_tokens=skip_special_tokens)
        return text

    def convert_tokens_to_ids(self, tokens: Any) -> Any:
        """A token's id, or those of several; that of <unk> for one that it does not have."""
        if not isinstance(tokens, str):
            return [self.convert_tokens_to_ids(token) for token in tokens]
        found = self._core.token_to_id(tokens)
        return self.unk_token_id if found is None else found

    def add_tokens(self, tokens: Sequence[str]) -> int:
        """Match these before any splitting; returns how many are new to the vocabulary."""
        added: int = self._core.add_tokens(list(tokens))
        return added

    def get_vocab(self) -> dict[str, int]:
        """Every token and its id."""
        vocabulary: dict[str, int] = self._core.get_vocab(with_added_tokens=True)
        return vocabulary

    def get_added_vocab(self) -> dict[str, int]:
        """The tokens that are matched before any splitting, and their ids."""
        return {token.content: i for i, token in self._core.get_added_tokens_decoder().items()}

    def __len__(self) -> int:
        """The number of tokens."""
        size: int = self._core.get_vocab_size(with_added_tokens=True)
        return size

    def __getattr__(self, name: str) -> Any:
        """Everything else that it has."""
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self.whole, name)


PLAIN_TOKENIZERS = ("TokenizersBackend", "PreTrainedTokenizerFast")
"""Classes of transformers that read tokenizer.json unchanged."""
SPECIAL = ("bos_token", "eos_token", "unk_token", "pad_token", "mask_token", "image_token")
PLAIN_SETTINGS: dict[str, tuple[Any, ...]] = {
    "clean_up_tokenization_spaces": (False,), "extra_special_tokens": ([], {}),
    "tokenizer_class": PLAIN_TOKENIZERS,
}  # fmt: skip
"""What a tokenizer_config.json has to say, beside `SPECIAL` and these."""
OWN = "model_specific_special_tokens"  # written by transformers once more beside `SPECIAL`
UNREAD = ("backend", "is_local", "local_files_only", "model_max_length", "padding_side",
          "processor_class", OWN)  # fmt: skip


def _open_tokenizer(folder: Path) -> Any:
    """A folder's tokenizer: a `LeanTokenizer` where nothing but its two files makes it."""
    settings = read_json(folder / "tokenizer_config.json")
    older = ("special_tokens_map.json", "added_tokens.json")
    if (
        settings.keys() - {*UNREAD} == {*SPECIAL, *PLAIN_SETTINGS}
        and all(settings[name] in plain for name, plain in PLAIN_SETTINGS.items())
        and settings.get(OWN, {}).items() <= settings.items()
        and not any((folder / name).exists() for name in older)
    ):
        core = Tokenizer.from_file(str(folder / "tokenizer.json"))
        special = {name: settings[name] for name in SPECIAL}
        added = core.get_added_tokens_decoder().values()
        if {*special.values()} <= {token.content for token in added if token.special}:
            return LeanTokenizer(folder, core, special)
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(folder)


PLAIN_PICTURES = ("do_resize", "do_rescale", "do_normalize")
SETTINGS = ("size", "resample", "rescale_factor", "image_mean", "image_std", "image_seq_length")


def open_processor(folder: str | Path) -> Any:
    """A folder's processor: a `LeanProcessor` where its images are resized and scaled, and no more.

    Raises ModelError naming what is missing or broken.
    """
    folder = Path(folder)
    require_files(folder, "tokenizer.json", "tokenizer_config.json")
    older = folder / "preprocessor_config.json"
    try:
        path = older if older.is_file() else folder / "processor_config.json"
        found = read_json(path)
        settings = found.get("image_processor", found)
        known = all(name in settings for name in SETTINGS)
        plain = all(settings.get(name, True) is True for name in PLAIN_PICTURES)
        square = set(settings.get("size", ())) == {"height", "width"}
        if not (known and plain and square) or settings.get("do_pad") or settings.get("do_crop"):
            return load_processor(folder)
        return LeanProcessor(folder, _open_tokenizer(folder), settings)
    except Exception:  # noqa: BLE001 - the whole one says what is wrong
        return load_processor(folder)


def prepare_images(
    processor: Any, images: Sequence[npt.NDArray[np.uint8]]
) -> npt.NDArray[np.float32]:
    """Return a backbone's pixels: images, uint8 RGB (H, W, 3) each -> (n, 3, S, S) in -1..1."""
    if isinstance(processor, LeanProcessor):
        return processor.pixels(images)
    opened = [Image.fromarray(image) for image in images]
    pixels = processor.image_processor(opened, return_tensors="np")["pixel_values"]
    return np.asarray(pixels, np.float32)


def escape(text: str, tokenizer: Any) -> str:
    """`text` with every special or added token taken apart, so that it is only ever plain words.

    A space after the token's first character is enough ("<loc0005>" becomes "< loc0005>"), for any
    tokenizer: tokens are looked up in the tokenizer itself, upper and lower case alike. Runs of
    white space become one space, so that no newline can end the prefix early.
    """
    text = " ".join(text.split())
    if not _added_beginning(tokenizer).search(text):
        return text
    pattern = _added_pattern(tokenizer)
    while pattern.search(text):
        text = pattern.sub(lambda match: f"{match[0][0]} {match[0][1:]}", text)
    return text


@lru_cache(maxsize=8)
def _added_beginning(tokenizer: Any) -> re.Pattern[str]:
    """The first characters of added tokens: compiling the pattern of all takes milliseconds."""
    return _one_of(sorted({name[0] for name in _added_names(tokenizer)}))


@lru_cache(maxsize=8)
def _added_pattern(tokenizer: Any) -> re.Pattern[str]:
    """The tokens matched in raw text before any splitting, which is how a typed one gets in."""
    return _one_of(sorted(_added_names(tokenizer), key=len, reverse=True))


def _added_names(tokenizer: Any) -> set[str]:
    names = {*tokenizer.get_added_vocab(), *tokenizer.all_special_tokens}
    return {name for name in names if len(name.strip()) > 1}


def _one_of(names: Sequence[str]) -> re.Pattern[str]:
    choices = "|".join(map(re.escape, names))
    return re.compile(choices if choices else r"(?!)", re.IGNORECASE)


@dataclass(frozen=True)
class Prompts:
    """A batch of B prompts of T tokens, padded on the right: numpy arrays, after `to` tensors."""

    input_ids: Any  # (B, T) int64
    attention_mask: Any  # (B, T) int64, 1 for a token, 0 for padding
    token_type_ids: Any  # (B, T) int64, 0 image and prefix, 1 suffix, 0 padding
    labels: Any  # (B, T) int64, the suffix's ids, -100 elsewhere
    query_mask: Any  # (B, T) bool, Qx: the words after the conditioning word

    def to(self, device: torch.device | str) -> Prompts:
        """The same prompts as tensors on a device of torch."""
        import torch

        made = {name: torch.as_tensor(values).to(device) for name, values in vars(self).items()}
        return Prompts(**made)


def encode_prompts(
    processor: PaliGemmaProcessor,
    instruction: str | Sequence[str],
    contexts: Sequence[str],
    suffixes: Sequence[str] | None = None,
    image_tokens: int | None = None,
) -> Prompts:
    """The tokens PaliGemmaProcessor makes of "instruction context", without touching a picture.

    instruction: one for all contexts, or one for each. image_tokens: as many as the features of a
    picture that they are asked about; None: of a whole one.

    `contexts` are people's words (data: they are escaped); `instruction` ("detect", "clarify") and
    `suffixes` (training targets, which may hold location tokens) are ours. An empty instruction
    gives the bare context.
    """
    tokenizer = processor.tokenizer
    one = isinstance(instruction, str)
    seen = processor.image_seq_length if image_tokens is None else image_tokens
    rows = []
    for i, context in enumerate(contexts):
        word = instruction if one else instruction[i]
        prefix = f"{word} " if word else ""
        prefix += escape(context, tokenizer)
        suffix = suffixes[i] if suffixes else None
        rows.append(_encode(processor, seen, prefix, len(word), suffix))
    length = max(len(row["input_ids"]) for row in rows)
    fill = {"input_ids": tokenizer.pad_token_id, "labels": -100, "query_mask": False}

    def batch(name: str) -> npt.NDArray[Any]:
        padded = [row[name] + [fill.get(name, 0)] * (length - len(row[name])) for row in rows]
        return np.array(padded)

    return Prompts(**{name: batch(name) for name in rows[0]})


def _encode(
    processor: PaliGemmaProcessor, image_tokens: int, prefix: str, skip: int, suffix: str | None
) -> dict[str, list[Any]]:
    """One prompt as lists; words that start before character `skip` are no queries."""
    text = encode_text(processor.tokenizer, prefix, skip, suffix)
    lead: dict[str, Any] = {
        "input_ids": processor.image_token_id,
        "attention_mask": 1,
        "token_type_ids": 0,
        "labels": -100,
        "query_mask": False,
    }
    return {name: [lead[name]] * image_tokens + values for name, values in text.items()}


def encode_text(tokenizer: Any, prefix: str, skip: int, suffix: str | None) -> dict[str, list[Any]]:
    """Return the tokens after the image tokens, as lists named like the fields of `Prompts`.

    `prefix` is taken as it is (escape a person's words first); words that start before its
    character `skip` are no queries.
    """
    start = len(tokenizer.bos_token)
    text = tokenizer(
        f"{tokenizer.bos_token}{prefix}\n", return_offsets_mapping=True, add_special_tokens=False
    )
    ids, offsets = list(text["input_ids"]), text["offset_mapping"]
    # Offsets are in characters of "<bos>prefix\n"; the newline is the last character.
    is_query = [start + skip <= begin < start + len(prefix) for begin, _ in offsets]
    target = [] if suffix is None else _suffix_ids(tokenizer, suffix)
    return {
        "input_ids": ids + target,
        "attention_mask": [1] * (len(ids) + len(target)),
        "token_type_ids": [0] * len(ids) + [1] * len(target),
        "labels": [-100] * len(ids) + target,
        "query_mask": is_query + [False] * len(target),
    }


def _suffix_ids(tokenizer: Any, suffix: str) -> list[int]:
    return list(tokenizer(suffix + tokenizer.eos_token, add_special_tokens=False)["input_ids"])


def decode_text(tokenizer: Any, ids: Sequence[int]) -> str:
    """Generated ids as a sentence, without special tokens."""
    return detokenize(tokenizer.decode(list(ids), skip_special_tokens=True).strip())


def detokenize(text: str) -> str:
    """Join word tokens as people write them.

    >>> detokenize("i don ' t see the red one , or the blue one .")
    "i don't see the red one, or the blue one."
    """
    text = re.sub(r"\s+([.,?!;:])", r"\1", text)
    return re.sub(r"(\w)\s*'\s*(s|re|ll|ve|d|m|t)\b", r"\1'\2", text)
