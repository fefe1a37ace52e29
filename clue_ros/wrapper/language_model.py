# Copyright 2026 clue_ros contributors
# SPDX-License-Identifier: Apache-2.0
"""A causal language model that names the box that a dialogue means.

Any model that transformers loads: a hub id, a folder, a GGUF file, or the folder of an adapter that
`clue train wrapper` wrote. The lines about the boxes are read once and kept (key-value cache); each
dialogue about them adds its own tokens only. Importing this module is cheap: torch is imported when
a model is loaded, so that a wrapper with rules or with a server does without it.
"""

from __future__ import annotations

import copy
import hashlib
import os
import re
import warnings
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, fields, replace
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from clue_ros.dialogue.candidates import Candidate
from clue_ros.errors import ModelError
from clue_ros.model.devices import OnDevice, choose_device, choose_dtype
from clue_ros.model.loading import (
    check_sizes,
    first_line,
    is_hub_id,
    is_number,
    name_and_revision,
    named_base,
    read_json,
    write_json,
)
from clue_ros.model.lora import (
    PICKLED,
    adapter_tensors,
    check_adapter_config,
    check_ranks,
    per_module,
    plain_names,
    read_adapter_config,
)
from clue_ros.requirements import missing
from clue_ros.wrapper import is_address
from clue_ros.wrapper.prompt import (
    ASK,
    NONE,
    PAPER_FORMAT,
    SYSTEM,
    Answer,
    PromptFormat,
    list_boxes,
    listed_order,
    question_text,
    read_answer,
)

if TYPE_CHECKING:
    import torch

SETTINGS_FILE = "wrapper.json"
ADAPTER_FILE = "adapter_config.json"
ADAPTER_WEIGHTS = "adapter_model.safetensors"
ADAPTER_FILES = (SETTINGS_FILE, ADAPTER_FILE, ADAPTER_WEIGHTS)
MAX_ANSWER = 24  # tokens of an answer at least; more for "ask" with many boxes
MAX_WORDS = 40  # tokens of a worded question
MAX_PROMPT = 1024  # tokens: longer ones are left out of training, as in the paper
_ADAPTED = re.compile(r"(?:base_model\.model\.)?([\w.]{1,500})\.lora_(?:A\.weight|embedding_A)")
_QUERY = "\u241e"  # placeholder of the query in the chat template


@dataclass(frozen=True)
class WrapperSettings:
    """wrapper.json beside a tuned adapter: how it was prompted, and when to ask.

    threshold: probability of ambiguity from which to ask, chosen on validation. candidates: lines
    of the sources whose boxes it was trained with; empty where that is not known.
    """

    style: str = PAPER_FORMAT.style
    units: str = PAPER_FORMAT.units
    scores: bool = PAPER_FORMAT.scores
    colors: bool = PAPER_FORMAT.colors
    order: str = PAPER_FORMAT.order
    first: int = PAPER_FORMAT.first
    threshold: float = 0.5
    candidates: tuple[str, ...] = ()

    @property
    def form(self) -> PromptFormat:
        """The format of the boxes."""
        return PromptFormat(
            self.style, self.units, self.scores, self.colors, self.order, self.first
        )


def load_settings(folder: Path) -> WrapperSettings:
    """The settings in an adapter's folder, or the defaults. Raises ModelError."""
    path = folder / SETTINGS_FILE
    return settings_from(read_json(path), path) if path.is_file() else WrapperSettings()


def settings_from(content: Mapping[str, Any], path: object) -> WrapperSettings:
    """The settings in a wrapper.json's content; path: of the file, for errors. ModelError."""
    known = {field.name for field in fields(WrapperSettings)}
    values = {k: v for k, v in content.items() if k in known}
    lines = values.pop("candidates", [])
    if not isinstance(lines, list) or not all(isinstance(line, str) for line in lines):
        raise ModelError(f"{path}: candidates must be a list of texts")
    settings = WrapperSettings(**values, candidates=tuple(lines))
    problem = settings.form.problem()
    if not is_number(settings.threshold, 0, 1):
        problem = problem or f"threshold {settings.threshold!r}: want a number from 0 to 1"
    if problem:
        raise ModelError(f"{path}: {problem}")
    return settings


def adapter_folder(name: str) -> Path | None:
    """The folder of an adapter, here or fetched from the hub; None where the name is of none."""
    folder = Path(name).expanduser()
    named, revision = name_and_revision(name)
    if folder.exists() or not is_hub_id(name):
        return folder if (folder / ADAPTER_FILE).is_file() else None
    from huggingface_hub import hf_hub_download, snapshot_download

    try:
        hf_hub_download(named, ADAPTER_FILE, revision=revision)
    except Exception:  # noqa: BLE001 - it is a model, or its loading says what is wrong
        return None
    found = Path(snapshot_download(named, revision=revision, allow_patterns=[*ADAPTER_FILES]))
    if not (found / ADAPTER_WEIGHTS).is_file():
        with suppress(Exception):  # there is none either, which reading the folder says
            hf_hub_download(named, PICKLED, revision=revision)
    return found


def adapters_base(content: Mapping[str, Any], path: object) -> str:
    """The base that an adapter_config.json's content names, with its revision if any.

    path: of the file, for errors. Raises ModelError.
    """
    named = named_base(content)
    if named is None:
        raise ModelError(f"{path} names no base model")
    return f"{named[0]}@{named[1]}" if named[1] else named[0]


def adapter_config(folder: Path, modules: Collection[str]) -> Any:
    """The LoraConfig of an adapter's folder, without the patterns that a stranger wrote in it.

    It adapts the modules that its file has tensors for. modules: the names of the base's modules.
    Raises ModelError.
    """
    from clue_ros.model.adapters import plain_config

    place, path = folder / ADAPTER_FILE, folder / ADAPTER_WEIGHTS
    pickled = not path.is_file() and (folder / PICKLED).is_file()
    content = read_json(place) if pickled else read_adapter_config(folder)
    saved = plain_names(place, "modules_to_save", content.get("modules_to_save"))
    check_adapter_config(place, content, alone=True)
    if pickled:
        path = folder / PICKLED
    entries = pickled_tensors(path) if pickled else adapter_tensors(path)
    of_a = {key: match[1] for key in entries if (match := _ADAPTED.fullmatch(key))}
    names = sorted(set(of_a.values()))
    for name in [n for n in names if n not in modules] or ([] if names else ["no LoRA tensor"]):
        raise ModelError(f"{path} has {name}, which this model does not")
    try:
        each = per_module(content, "r", "rank_pattern", names)
        ranks = {name: int(rank) for name, rank in each.items()}
        check_ranks(path, entries, {key: ranks[name] for key, name in of_a.items()})
        alphas = per_module(content, "lora_alpha", "alpha_pattern", names)
        return plain_config(content, ranks, alphas, saved or None)
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise ModelError(f"{place}: {first_line(error)}") from error


def pickled_tensors(path: Path) -> dict[str, Any]:
    """The shapes in an adapter_model.bin by their names, as older versions of peft write it.

    It is unpickled to tensors alone (`torch.load`, weights_only), here and by peft. Raises
    ModelError for one that holds anything else.
    """
    import torch

    try:
        content = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # whatever it makes of a broken or a foreign file
        raise ModelError(
            f"{path} is not loaded, it must hold tensors alone: {first_line(error)}"
        ) from (error)
    if not isinstance(content, dict) or not all(
        isinstance(name, str) and isinstance(value, torch.Tensor) and value.is_floating_point()
        for name, value in content.items()
    ):
        raise ModelError(f"{path} is not loaded, it must hold tensors of fractions by their names")
    return {name: {"shape": list(value.shape)} for name, value in content.items()}


def save_settings(settings: WrapperSettings, folder: Path, **notes: Any) -> None:
    """Write wrapper.json; `notes` (data, figures) are kept beside the settings."""
    write_json(folder / SETTINGS_FILE, {**notes, **asdict(settings)})


@dataclass(frozen=True)
class Choice:
    """The language model's choice among some boxes in a dialogue.

    answer: its greedy answer, with the candidates' indices; text: as it was written, with the
    lines' numbers. probabilities: of each candidate to be the answer, and of "ask" and "none", by
    the logits of the answers' tokens; they sum to 1.
    """

    answer: Answer
    text: str
    probabilities: tuple[float, ...]
    ask: float
    none: float


@dataclass(frozen=True)
class Listing:
    """Boxes that the model has read.

    order: index of the candidate on each line; cache: of the lines' tokens; length: in tokens;
    first: number of the first line.
    """

    order: tuple[int, ...]
    lines: str
    cache: Any
    length: int
    first: int = 1

    @property
    def count(self) -> int:
        """The number of boxes."""
        return len(self.order)

    def candidates_of(self, answer: Answer) -> Answer:
        """The answer with the candidates' indices in place of the lines'."""
        return replace(answer, indices=tuple(self.order[line] for line in answer.indices))

    def choice(self, text: str, shares: Sequence[float]) -> Choice:
        """Return the choice of an answer. shares: of the lines, of "ask" and of "none"."""
        *lines, ask, none = shares
        boxes = dict(zip(self.order, lines, strict=True))
        answer = self.candidates_of(read_answer(text, self.count, self.first))
        return Choice(answer, text, tuple(boxes[i] for i in sorted(boxes)), ask, none)


P = ParamSpec("P")
T = TypeVar("T")


def _inferring(method: Callable[P, T]) -> Callable[P, T]:
    """Let a method compute without gradients."""

    @wraps(method)
    def wrapped(*args: P.args, **settings: P.kwargs) -> T:
        import torch

        with torch.inference_mode():
            return method(*args, **settings)

    return wrapped


class LanguageModel(OnDevice):
    """A causal language model and its tokenizer, asked about boxes. Not thread-safe."""

    def __init__(
        self, model: Any, tokenizer: Any, name: str, settings: WrapperSettings | None = None
    ) -> None:
        self.model, self.tokenizer, self.name = model, tokenizer, name
        self.settings = settings or WrapperSettings()

    @classmethod
    def load(
        cls,
        name: str | Path,
        *,
        device: str = "auto",
        dtype: str = "auto",
        quantization: str = "none",
    ) -> LanguageModel:
        """Load a hub id, a folder, a GGUF file, or an adapter (folder or hub id) with its base.

        quantization: "none", "int8" or "nf4" (needs bitsandbytes). A GGUF file needs the packages
        gguf and, for some tokenizers, sentencepiece; its weights are kept as bfloat16 in
        `cache_folder()`, so that the next start is fast. Raises ModelError.
        """
        where = choose_device(device)
        kind = choose_dtype(dtype, where)
        settings, base = WrapperSettings(), str(name)
        try:
            adapter = adapter_folder(str(name))
            if adapter is not None:
                path = adapter / ADAPTER_FILE
                settings, base = load_settings(adapter), adapters_base(read_json(path), path)
            model, tokenizer = load_causal(base, kind, quantization, where)
            if adapter is not None:
                from peft import PeftModel

                adapted = adapter_config(adapter, dict(model.named_modules()))
                model = PeftModel.from_pretrained(model, str(adapter), config=adapted)
        except ModelError:
            raise
        except Exception as error:  # whatever the libraries raise for what cannot be loaded
            raise ModelError(
                f"cannot load the language model {name}: {first_line(error)} (want a hub id, a"
                " folder, a .gguf file, or the folder of an adapter)"
            ) from error
        if quantization == "none":
            model = model.to(where)
        return cls(model.eval(), tokenizer, str(name), settings)

    @property
    def dtype(self) -> str:
        """The type of its weights."""
        return str(next(self.model.parameters()).dtype).removeprefix("torch.")

    # Prompts.

    def plain(self, text: str) -> str:
        """The text with the tokenizer's special tokens taken apart: what a person types is data."""
        for token in self.tokenizer.all_special_tokens:
            if len(token) > 1:
                text = text.replace(token, f"{token[0]} {token[1:]}")
        return text

    def prompt(
        self, candidates: Sequence[Candidate], size: tuple[int, int], dialogue: str
    ) -> tuple[list[int], list[int]]:
        """The tokens up to the boxes' last line, and those of the rest with the query.

        The lines are in the format's order (`listed_order`).
        """
        before, after = self._halves(self._lines(candidates, size), dialogue)
        return before, after

    def _lines(self, candidates: Sequence[Candidate], size: tuple[int, int]) -> str:
        form = self.settings.form
        listed = [candidates[index] for index in listed_order(candidates, form)]
        return self.plain(list_boxes(listed, size, form))

    def _halves(self, lines: str, dialogue: str) -> tuple[list[int], list[int]]:
        query = "\n" + self.plain(question_text(dialogue, self.settings.form))
        before, after = self._rendered(f"{lines}{_QUERY}").split(_QUERY)
        return self._tokens(before), self._tokens(query + after)

    def _rendered(self, content: str) -> str:
        """A user's message in the model's chat template; plain text for a model without one."""
        if not getattr(self.tokenizer, "chat_template", None):
            bos = self.tokenizer.bos_token or ""
            return f"{bos}{SYSTEM}\n{content}\nAnswer:"
        messages = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": content}]
        try:
            return self._template(messages)
        except Exception:  # noqa: BLE001 - a template without a system role (Gemma) raises its own
            return self._template([{"role": "user", "content": f"{SYSTEM}\n{content}"}])

    def _template(self, messages: list[dict[str, str]]) -> str:
        return str(
            self.tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
        )

    def _tokens(self, text: str) -> list[int]:
        return list(self.tokenizer(text, add_special_tokens=False)["input_ids"])

    def answer_tokens(self, text: str) -> list[int]:
        """The tokens of an answer, with the end of the turn."""
        return [*self._tokens(text), self.end]

    @property
    def end(self) -> int:
        """The token that ends the model's turn."""
        return int(self.tokenizer.eos_token_id)

    # The model's passes.

    @_inferring
    def read(self, candidates: Sequence[Candidate], size: tuple[int, int]) -> Listing:
        """Read the lines about boxes in an image of this size (width, height)."""
        lines = self._lines(candidates, size)
        before, _ = self._halves(lines, "")
        out = self.model(input_ids=self._row(before), use_cache=True, logits_to_keep=1)
        form = self.settings.form
        order = listed_order(candidates, form)
        return Listing(order, lines, out.past_key_values, len(before), form.first)

    @_inferring
    def choose(self, listing: Listing, dialogue: str) -> Choice:
        """The answer to a dialogue: the request, or C(k) with all its turns."""
        _, rest = self._halves(listing.lines, dialogue)
        cache = copy.deepcopy(listing.cache)
        logits = self._next(rest, cache)
        shares = self._probabilities(logits, cache, listing)
        most = max(MAX_ANSWER, 4 + 3 * listing.count)
        text = self.tokenizer.decode(self._greedy(logits, cache, most), skip_special_tokens=True)
        return listing.choice(text.strip(), shares)

    @_inferring
    def matching(self, listing: Listing, dialogue: str) -> tuple[int, ...]:
        """Return the indices of the boxes that still match: the model's answer after "ask"."""
        _, rest = self._halves(listing.lines, dialogue)
        cache = copy.deepcopy(listing.cache)
        logits = self._next([*rest, *self._tokens(ASK)], cache)
        tokens = self._greedy(logits, cache, 4 + 3 * listing.count)
        text = self.tokenizer.decode(tokens, skip_special_tokens=True)
        answer = read_answer(f"{ASK} {text}", listing.count, listing.first)
        return listing.candidates_of(answer).indices

    @_inferring
    def say(self, request: str) -> str:
        """A short text of its own, without the adapter: the first line of a greedy answer."""
        if getattr(self.tokenizer, "chat_template", None):
            prompt = self._template([{"role": "user", "content": self.plain(request)}])
        else:
            prompt = f"{self.tokenizer.bos_token or ''}{self.plain(request)}\n"
        disabled = getattr(self.model, "disable_adapter", None)
        if disabled is None:
            return self._say(prompt)
        with disabled():
            return self._say(prompt)

    def _say(self, prompt: str) -> str:
        from transformers import DynamicCache

        cache = DynamicCache()
        logits = self._next(self._tokens(prompt), cache)
        tokens = self._greedy(logits, cache, MAX_WORDS)
        text = self.tokenizer.decode(tokens, skip_special_tokens=True).strip()
        return text.splitlines()[0].strip() if text else ""

    def _row(self, tokens: Sequence[int]) -> torch.Tensor:
        import torch

        return torch.tensor([list(tokens)], device=self.device)

    def _next(self, tokens: Sequence[int], cache: Any) -> torch.Tensor:
        """Logits (vocabulary,) of the token after these; the cache grows by them."""
        out = self.model(
            input_ids=self._row(tokens), past_key_values=cache, use_cache=True, logits_to_keep=1
        )
        logits: torch.Tensor = out.logits[0, -1].float()
        return logits

    def _greedy(self, logits: torch.Tensor, cache: Any, most: int) -> list[int]:
        said: list[int] = []
        while len(said) < most:
            token = int(logits.argmax())
            if token == self.end:
                break
            said.append(token)
            logits = self._next([token], cache)
        return said

    def _probabilities(self, logits: torch.Tensor, cache: Any, listing: Listing) -> list[float]:
        """Probability of each allowed answer: the boxes in order, "ask ..." and "none".

        The tokens of all allowed answers form a tree; at each branch the model's probabilities are
        shared among the branches that are allowed.
        """
        numbers = range(listing.first, listing.first + listing.count)
        answers = [self.answer_tokens(str(number)) for number in numbers]
        answers += [self._tokens(ASK), self.answer_tokens(NONE)]
        shares = [1.0] * len(answers)
        open_nodes: list[tuple[tuple[int, ...], torch.Tensor]] = [((), logits)]
        while open_nodes:
            prefix, here = open_nodes.pop()
            below = [i for i, a in enumerate(answers) if tuple(a[: len(prefix)]) == prefix]
            branches = list(dict.fromkeys(answers[i][len(prefix)] for i in below))
            branch_shares = here[branches].softmax(-1).tolist()
            for token, share in zip(branches, branch_shares, strict=True):
                inside = [i for i in below if answers[i][len(prefix)] == token]
                for i in inside:
                    shares[i] *= share
                longer = [i for i in inside if len(answers[i]) > len(prefix) + 1]
                if len(longer) > 1:
                    further = copy.deepcopy(cache)
                    follow = (*prefix, token)
                    open_nodes.append((follow, self._next(follow, further)))
        return shares


# -------------------------------------------------------------------------------------------------
# Loading.


def load_causal(
    name: str, dtype: torch.dtype, quantization: str, device: torch.device
) -> tuple[Any, Any]:
    """A causal language model and its tokenizer, from a hub id, a folder or a GGUF file.

    Pickled weights are never loaded, and no code of a repository is run.
    """
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedConfig

    from clue_ros.model.torch_backbone import quietly

    if is_address(name):
        raise ModelError(f"{name} is a server: name the weights, a hub id, a folder or .gguf file")
    path = Path(name).expanduser()
    if path.suffix.lower() == ".gguf":
        name = str(converted_gguf(path))
    place = name
    name, revision = name_and_revision(name)
    pinned = {"revision": revision} if revision else {}
    check_sizes(place, PreTrainedConfig.get_config_dict(name, **pinned)[0])
    options: dict[str, Any] = {"dtype": dtype, "use_safetensors": True, **pinned}
    if quantization != "none":
        from transformers import BitsAndBytesConfig

        options["device_map"] = {"": device}
        options["quantization_config"] = (
            BitsAndBytesConfig(load_in_8bit=True)
            if quantization == "int8"
            else BitsAndBytesConfig(
                load_in_4bit=True,
                bnb_4bit_quant_type="nf4",
                bnb_4bit_use_double_quant=True,
                bnb_4bit_compute_dtype=torch.bfloat16,
            )
        )
    with quietly():
        tokenizer = AutoTokenizer.from_pretrained(name, **pinned)
        model = AutoModelForCausalLM.from_pretrained(name, **options)
    if tokenizer.eos_token_id is None:
        raise ModelError(f"the tokenizer of {name} has no token that ends a turn")
    return model, tokenizer


def cache_folder() -> Path:
    """Return the folder of converted GGUF files: $XDG_CACHE_HOME/clue_ros or ~/.cache/clue_ros."""
    root = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(root) / "clue_ros"


def converted_folder(path: Path) -> Path:
    """Return the folder of a GGUF file's converted copy; a changed file gets another one."""
    about = path.stat()
    key = f"{path.resolve()}:{about.st_size}:{about.st_mtime_ns}"
    return cache_folder() / "gguf" / f"{path.stem}-{hashlib.sha256(key.encode()).hexdigest()[:12]}"


def converted_gguf(path: Path) -> Path:
    """The folder of a GGUF file's weights in bfloat16 safetensors, made at the first call.

    Dequantising takes about ten times as long as loading the folder. Raises ModelError.
    """
    try:
        import torch
        from transformers import AutoModelForCausalLM, AutoTokenizer
        from transformers.utils import is_gguf_available
    except ImportError as error:
        raise ModelError(f"a Python package is missing ({error})") from error
    if not path.is_file():
        raise ModelError(f"there is no file {path}")
    folder = converted_folder(path)
    if (folder / "config.json").is_file():
        return folder
    if not is_gguf_available():
        raise ModelError(missing("gguf", f"{path}, a GGUF file,"))
    from clue_ros.model.torch_backbone import quietly

    partial = folder.with_name(f"{folder.name}.partial")
    with quietly(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tokenizer = AutoTokenizer.from_pretrained(path.parent, gguf_file=path.name)
        model: Any = AutoModelForCausalLM.from_pretrained(
            path.parent, gguf_file=path.name, dtype=torch.float32
        )
        # The weights are whole numbers no longer; transformers would refuse to save them.
        if hasattr(model.config, "quantization_config"):
            del model.config.quantization_config
        model.hf_quantizer, model.is_quantized = None, False
        model.to(torch.bfloat16).save_pretrained(partial)
        tokenizer.save_pretrained(partial)
    partial.rename(folder)
    return folder
