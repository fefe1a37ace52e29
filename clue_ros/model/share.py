# Copyright 2026 clue_ros contributors
# SPDX-License-Identifier: Apache-2.0
"""``clue share``: a model's folder as others can load it, with a card, and onto the hub.

    clue share models/full --name me/clue-adapters --out shared           # look at it first
    clue share models/full --name me/clue-adapters --out shared --push    # `hf auth login` before

The folder has the adapters in peft's format, which name their base by its hub id, the settings that
CLUE reads beside them, the base if the model has one of its own, and README.md, a model card with
the hub's YAML header. Objects that people taught, states of training and whatever else lies in a
model's folder stay here.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from clue_ros.errors import ClueError
from clue_ros.model.backbone import DETECTOR, IVG, JOINT
from clue_ros.model.box_head import WEIGHTS_FILE as BOX_HEAD
from clue_ros.model.loading import (
    LOGIN,
    MASK_DECODER,
    find_model,
    first_line,
    is_hub_id,
    name_and_revision,
    named_base,
    read_json,
    weight_files,
    write_json,
)
from clue_ros.model.lora import CONFIG_FILE, WEIGHTS_FILE

_OF_ADAPTER = (
    WEIGHTS_FILE, "head.safetensors", "detector.json", "fusion.json", "ivg.json", "README.md",
)  # fmt: skip
_OF_BASE = (
    "config.json", "generation_config.json", "preprocessor_config.json", "processor_config.json",
    "tokenizer.json", "tokenizer.model", "tokenizer_config.json", "special_tokens_map.json",
    "added_tokens.json", "model.safetensors.index.json", MASK_DECODER, BOX_HEAD, "box_head.json",
    "zero_shot.json",
)  # fmt: skip
_ABOUT = {
    DETECTOR: "adapter A judges whether a request names exactly one thing in the picture",
    IVG: "adapter B asks which one is meant, or points with four location tokens",
    JOINT: "one adapter judges, asks and points",
}


@dataclass(frozen=True)
class Shared:
    """The shared model. name: on the hub. base: hub id and revision of the adapters' base.

    has_base: the base is part of it. parts: the adapters' folders.
    """

    name: str
    base: str
    revision: str | None
    has_base: bool
    parts: tuple[str, ...]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of ``clue share``."""
    parser.add_argument("model", metavar="MODEL", help="a model's folder")
    parser.add_argument(
        "--out", type=Path, required=True, metavar="FOLDER", help="the folder to write"
    )
    parser.add_argument("--name", required=True, metavar="OWNER/NAME", help="its name on the hub")
    parser.add_argument(
        "--base",
        metavar="HUB-ID",
        help="the base on the hub (owner/name@revision), where the adapters name a folder of this"
        " machine",
    )
    parser.add_argument("--push", action="store_true", help=f"upload it, with the login of {LOGIN}")
    parser.add_argument("--private", action="store_true", help="with --push: not for everybody")


def run(args: argparse.Namespace) -> int:
    """Write the folder, and push it if asked; the exit status."""
    shared = share(args.model, args.out, args.name, args.base)
    print(f"{args.out}: {', '.join(shared.parts)}, base {shared.base}", file=sys.stderr)
    if args.push:
        print(push(args.out, args.name, private=args.private))
    else:
        print(args.out)
    return 0


def share(model: str | Path, out: Path, name: str, base: str | None = None) -> Shared:
    """Write the folder. base: see `--base`. Raises ClueError, ModelError."""
    folder = find_model(model)
    for hub in (name, *([base] if base else [])):
        if not is_hub_id(hub):
            raise ClueError(f"{hub!r} is no name on the hub: want owner/name")
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise ClueError(f"{out} is there and not empty: name another folder")
    parts = tuple(p for p in (DETECTOR, IVG, JOINT) if (folder / p / CONFIG_FILE).is_file())
    has_base = (folder / "config.json").is_file()
    if not parts and not has_base:
        raise ClueError(f"{model} has neither adapters nor a base: nothing to share")
    shared = Shared(name, *_base_of(folder, parts, name, base, has_base), has_base, parts)
    out.mkdir(parents=True, exist_ok=True)
    if has_base:
        weights = [path.name for path in weight_files(folder)]
        _copy(folder, out, (*_OF_BASE, *weights))
    for part in parts:
        (out / part).mkdir()
        _copy(folder / part, out / part, _OF_ADAPTER)
        adapter = read_json(folder / part / CONFIG_FILE)
        adapter |= {"base_model_name_or_path": shared.base, "revision": shared.revision}
        write_json(out / part / CONFIG_FILE, adapter)
    (out / "README.md").write_text(card(shared, folder), encoding="utf-8")
    return shared


def _base_of(
    folder: Path, parts: tuple[str, ...], name: str, given: str | None, has_base: bool
) -> tuple[str, str | None]:
    """The base's hub id and revision."""
    if has_base:
        return name, None
    if given is not None:
        return name_and_revision(given)
    named = {named_base(read_json(folder / part / CONFIG_FILE)) for part in parts}
    if len(named) > 1:
        raise ClueError(f"the adapters in {folder} are of different bases")
    found = named.pop()
    if found is None or not is_hub_id(found[0]):
        where = "no base" if found is None else found[0]
        raise ClueError(f"the adapters name {where}: give the base's hub id with --base")
    return found


def _copy(source: Path, out: Path, names: tuple[str, ...]) -> None:
    """Copy those files that are there; JSON without the folders of this machine."""
    for name in names:
        if not (source / name).is_file():
            continue
        if name.endswith(".json") and not name.startswith(("tokenizer", "model.")):
            write_json(out / name, _without_paths(read_json(source / name)))
        else:
            shutil.copyfile(source / name, out / name)


def _without_paths(value: Any) -> Any:
    """A JSON value whose absolute paths are the names of their last parts."""
    if isinstance(value, dict):
        return {key: _without_paths(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_without_paths(each) for each in value]
    if isinstance(value, str) and value.startswith("/"):
        return Path(value).name
    return value


# -------------------------------------------------------------------------------------------------
# The card.


def card(shared: Shared, folder: Path) -> str:
    """README.md: YAML header, how to load it three ways, what its folder says of its training."""
    header = ["---", f"library_name: {'transformers' if shared.has_base else 'peft'}"]
    header += [] if shared.has_base else [f"base_model: {shared.base}"]
    header += ["pipeline_tag: image-text-to-text"]
    header += ["tags: [clue, ambiguity-detection, visual-grounding, robotics]", "---"]
    what = "A PaliGemma 2 with adapters" if shared.has_base else f"Adapters for {shared.base}"
    lines = [
        *header,
        "",
        f"# {shared.name.partition('/')[2]}",
        "",
        f"{what} of CLUE (clue_ros):",
        "",
    ]
    lines += [f"- `{part}/`: {_ABOUT[part]}" for part in shared.parts]
    lines += ["", "With clue_ros:", "", *_indented(_by_clue(shared))]
    lines += ["", "With transformers and peft alone:", "", *_indented(_by_peft(shared, folder))]
    if shared.has_base and _stem(folder):
        lines += [
            "",
            "Its vision tower adds the features of a frozen network to SigLIP's patches. Plain"
            " transformers has no class for that: `import clue_ros.model.paligemma` registers it."
            " Without that import transformers loads another model, whose tower lacks them.",
        ]
    for part in shared.parts:
        lines += _notes(folder / part, part)
    own = folder / "README.md"
    if own.is_file():
        lines += ["", "## Notes of its authors", "", _body(own.read_text(encoding="utf-8"))]
    return "\n".join(lines).rstrip() + "\n"


def _by_clue(shared: Shared) -> list[str]:
    return [
        f'clue ground IMAGE "pick up the mug" --model {shared.name}',
        f"ros2 launch clue_ros clue.launch.py model:={shared.name}",
    ]


def _by_peft(shared: Shared, folder: Path) -> list[str]:
    """Python that loads the adapters; the revision of the base with it."""
    pinned = f', revision="{shared.revision}"' if shared.revision else ""
    lines = ["import clue_ros.model.paligemma"] if shared.has_base and _stem(folder) else []
    lines += ["from transformers import AutoModelForImageTextToText, AutoProcessor"]
    lines += ["from peft import PeftModel", ""] if shared.parts else [""]
    lines += [
        f'base = AutoModelForImageTextToText.from_pretrained("{shared.base}"{pinned})',
        f'processor = AutoProcessor.from_pretrained("{shared.base}"{pinned})',
    ]
    for number, part in enumerate(shared.parts):
        where = f'"{shared.name}", subfolder="{part}", adapter_name="{part}"'
        call = (
            f"model.load_adapter({where})"
            if number
            else (f"model = PeftModel.from_pretrained(base, {where})")
        )
        lines.append(call)
    if len(shared.parts) > 1:
        lines.append(f'model.set_adapter("{shared.parts[-1]}")')
    return lines


def _stem(folder: Path) -> bool:
    vision = read_json(folder / "config.json").get("vision_config")
    return isinstance(vision, Mapping) and bool(vision.get("conv_stem"))


def _indented(lines: list[str]) -> list[str]:
    return [f"    {line}".rstrip() for line in lines]


def _notes(folder: Path, part: str) -> list[str]:
    """What the settings of an adapter say of its training and validation."""
    rows: list[str] = []
    for name in ("detector.json", "ivg.json"):
        if not (folder / name).is_file():
            continue
        notes = _without_paths(read_json(folder / name))
        for group in ("training", "validation"):
            found = notes.get(group)
            if isinstance(found, Mapping):
                rows += [f"| {group}: {k} | {json.dumps(v)} |" for k, v in sorted(found.items())]
    return ["", f"| `{part}` | |", "| --- | --- |", *dict.fromkeys(rows)] if rows else []


def _body(text: str) -> str:
    """A card without its YAML header."""
    if text.startswith("---\n"):
        text = text[4:].partition("\n---\n")[2]
    return text.strip()


# -------------------------------------------------------------------------------------------------
# The hub.


def push(folder: Path, name: str, *, private: bool = False) -> str:
    """Upload a folder as a model repository, which is made if missing; its address.

    Raises ClueError where nobody is logged in, or the hub refuses.
    """
    from huggingface_hub import HfApi, get_token

    if get_token() is None:
        raise ClueError(f"nobody is logged in to the hub: {LOGIN} with a token that may write")
    api = HfApi()
    try:
        api.create_repo(name, private=private, exist_ok=True)
        done = api.upload_folder(folder_path=folder, repo_id=name, commit_message="Share by clue")
    except Exception as error:  # the hub's client raises what its network library raises
        status = getattr(getattr(error, "response", None), "status_code", None)
        if status in (401, 403):
            reason = f"this account may not write there: {LOGIN} with a token that may"
        else:
            reason = first_line(error)
        raise ClueError(f"{name} was not uploaded, {folder} is whole: {reason}") from error
    return str(done)
