"""The card of a trained detector: README.md in its folder, made from what is known alone."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from clue_ros.model.variants import Variant

_READS = {
    "cnn": "a CNN over the attention map of that block",
    "ar": 'the decoder\'s own "yes" (ambiguous) or "no" after that block',
}


def write_card(
    folder: Path, variant: Variant, recipe: Mapping[str, Any], figures: Mapping[str, Any]
) -> None:
    """Write README.md: what the detector is, how it was made, what was measured on validation."""
    lines = [
        f"# {variant.title}",
        "",
        "An ambiguity detector of clue_ros, for the base that is named below: is there exactly one",
        "thing in the picture that the sentence names?",
        "",
        f"- depth: {variant.depth}; LoRA in {_blocks(variant)}; conditioning word"
        f" `{variant.instruction}`",
        f"- read from: {_READS[variant.head]}",
        "",
        '    Clue.load(MODEL, detector="THIS FOLDER")',
        "",
        "| Training | |",
        "| --- | --- |",
        *(f"| {name.replace('_', ' ')} | {value} |" for name, value in recipe.items()),
        "",
        "| Validation | |",
        "| --- | --- |",
        *(f"| {name} | {value} |" for name, value in figures["validation"].items()),
        "",
        "Threshold and temperature (detector.json) were chosen on the same validation data, so its",
        "figures flatter; `clue eval detectors` measures on held-out test data.",
        "",
    ]
    (folder / "README.md").write_text("\n".join(lines), encoding="utf-8")


def _blocks(variant: Variant) -> str:
    return "the last block that is run" if variant.finetune == "last" else "every block that is run"
