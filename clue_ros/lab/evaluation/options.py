"""Options and output that several `clue eval` commands share."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from clue_ros.grounders import has_checkpoint
from clue_ros.lab.options import at_least, option, output_file
from clue_ros.lab.simulator.command import DEFAULT_FOLDER
from clue_ros.model.load_options import DEFAULT_POLICY, POLICIES, LoadOptions
from clue_ros.model.loading import DEFAULT_MODEL
from clue_ros.model.quantization import QUANTIZATIONS

if TYPE_CHECKING:
    from clue_ros.engine import Clue
    from clue_ros.model.checkpoint import Checkpoint


def objects_option(use: str, default: str) -> Any:
    """`--objects`: detectors, named as `clue_ros.wrapper.sources` does. use, default: its help."""
    return option(
        (),
        f"{use}: base:MODEL, grounding-dino:NAME, owlv2:NAME, florence2:NAME,"
        " python:MODULE:FUNCTION;"
        f" default: {default}",
        nargs="+",
        metavar="KIND:ARGUMENT",
    )


def nouns_option() -> Any:
    """`--nouns`, beside `--objects`."""
    return option(
        (),
        "nouns for an open-vocabulary detector; default: the household's",
        nargs="+",
        metavar="NOUN",
    )


@dataclass(frozen=True, kw_only=True)
class ModelOptions:
    """Options: the measured model."""

    model: str = option(
        DEFAULT_MODEL, f"{DEFAULT_MODEL}, a folder or a hub id (owner/name@revision)"
    )
    device: str = option("auto", "auto, cpu or cuda")
    dtype: str = option(
        "float32", "number format: auto (a robot's), float32, mixed, bfloat16 or float16"
    )

    def load(self) -> Clue:
        """Load the model. Raises ModelError."""
        from clue_ros.engine import Clue

        return Clue.load(**vars(self), memory="")  # no taught words


@dataclass(frozen=True, kw_only=True)
class DetectorModelOptions(ModelOptions):
    """Options: a model with a replaceable detector."""

    detector: str | None = option(
        None, "folder of another detector, or a baseline's name", metavar="DIR"
    )
    head: str | None = option(
        None,
        "the detector's head, if it is your own code: imports and runs it",
        metavar="MODULE:CLASS",
    )


@dataclass(frozen=True, kw_only=True)
class WeightsOptions(DetectorModelOptions):
    """Options: a model with quantisable weights."""

    quantization: str = option(
        QUANTIZATIONS[0], "of the decoder's weights (nf4 has 4 bits)", choices=QUANTIZATIONS
    )


@dataclass(frozen=True, kw_only=True)
class PolicyOptions(DetectorModelOptions):
    """Options: a model, and its policy between a question and a box."""

    ivg: str | None = option(None, "folder of another adapter B", metavar="DIR")
    policy: str = option(
        DEFAULT_POLICY,
        "decides between a question and a box: the ambiguity detector (adapter A), the decoder's"
        " first token (adapter B), both, or the base without adapters (zero-shot)",
        choices=POLICIES,
    )
    threshold: float | None = option(
        None,
        "probability of ambiguity from which the robot asks; default: the model's",
        metavar="P",
    )
    views: int | None = option(
        None,
        "number of augmented views averaged for the box; default: the model's",
    )
    doubtful_score: float | None = option(
        None,
        "score of the first view's box up to which the other views are looked at, 1: always;"
        " default: the model's",
    )
    max_risk: float | None = option(
        None,
        "share of requests that may end in a wrong box without a confirmation; default: no bound",
        metavar="SHARE",
    )
    calibration: str | None = option(
        None,
        "file of `clue calibrate` that supports it; default: the model's",
        metavar="FILE.json",
    )

    candidates: tuple[str, ...] = option(
        (),
        "with --model wrapper, a source of boxes, such as base:household; once more for an"
        " ensemble",
        action="append",
        metavar="KIND:ARGUMENT",
    )
    language_model: str | None = option(
        None, "with --model wrapper, who chooses among boxes; default: rules", metavar="NAME"
    )

    @property
    def own_words(self) -> str | None:
        """The `memory` setting for the words in the model's folder alone."""
        from clue_ros.model.word_memory import WORDS

        return None if (Path(self.model).expanduser() / WORDS).is_dir() else ""

    def load(self, memory: str | None = "") -> Any:
        """Load the model, a `Grounder`; memory: as of `LoadOptions`. Raises ModelError."""
        from clue_ros.grounders import load_grounder

        settings = {**vars(self), "num_views": self.views, "memory": memory}
        del settings["views"]
        return load_grounder(LoadOptions(**settings))


def measured(grounder: Any) -> dict[str, Any]:
    """Return the measured model for a record: its name as given, hash and number format.

    sha256: of the files of a PaliGemma 2 and its adapters; None for a wrapper, which has many.
    """
    if has_checkpoint(grounder):
        return measured_checkpoint(grounder.model_name, grounder.checkpoint)
    return {
        "model": grounder.model_name,
        "sha256": None,
        "dtype": grounder.dtype,
        "device": grounder.device,
    }


def measured_checkpoint(name: str, checkpoint: Checkpoint) -> dict[str, Any]:
    """Return `measured` of a checkpoint without an engine; name: as it was given."""
    backbone = checkpoint.backbone
    return {
        "model": name,
        "sha256": checkpoint.digest,
        "dtype": backbone.dtype,
        "device": backbone.device,
    }


def commit() -> str | None:
    """Return the commit of this checkout, with "+" if files differ from it.

    None in an installed package.
    """
    root = Path(__file__).resolve().parents[3]

    def git(*words: str) -> str:
        run = subprocess.run(["git", "-C", str(root), *words], capture_output=True, text=True)
        return run.stdout.strip()

    try:
        if git("rev-parse", "--show-toplevel") != str(root):
            return None
        changed = "+" if git("status", "--porcelain", "--untracked-files=no") else ""
        return git("rev-parse", "--short=12", "HEAD") + changed
    except OSError:  # there is no git
        return None


def made_by(command_line: str, model: Mapping[str, Any], seed: int | None = None) -> dict[str, Any]:
    """Return a measurement's provenance, as `--json` records it. model: of `measured`."""
    return {"command": command_line, "commit": commit(), "seed": seed, **model}


@dataclass(frozen=True, kw_only=True)
class RobotOptions(PolicyOptions):
    """A model in a robot's number format, for results that are not measurements."""

    dtype: str = option("auto", "number format: auto, float32, mixed, bfloat16 or float16")


@dataclass(frozen=True, kw_only=True)
class OutputOptions:
    """Options: the format of printed results. command_line: as it was typed."""

    json: bool = option(False, "print one JSON object", exclusive=True)
    markdown: bool = option(False, "print Markdown tables", exclusive=True)
    command_line: str = ""

    def show(
        self,
        summary: Mapping[str, Any],
        text: Callable[[bool], str],
        model: Mapping[str, Any],
        seed: int | None = None,
    ) -> None:
        """Print the summary as one JSON object with its provenance, or `text(markdown)`.

        model: of `measured`. seed: of the choice of requests, if there is one.
        """
        if not self.json:
            print(text(self.markdown))
            return
        print(json.dumps({**summary, "made_by": made_by(self.command_line, model, seed)}))


@dataclass(frozen=True, kw_only=True)
class RecordsOptions(OutputOptions):
    """Options: the format of printed results, and the file of single results."""

    records: Path | None = option(
        None, "write one JSON line for each result", type=output_file(), metavar="FILE"
    )

    def write_records(self, records: Iterable[Mapping[str, Any]]) -> None:
        """Write one JSON line a record, if a file was given."""
        if self.records is not None:
            with self.records.open("w", encoding="utf-8") as file:
                for record in records:
                    file.write(json.dumps(record, ensure_ascii=False) + "\n")


PER_IMAGE: Any = option(2, "largest number of requests of each kind for an image", type=at_least(1))


@dataclass(frozen=True, kw_only=True)
class RequestOptions:
    """Options: the number of requests about an image, and the seed of their choice."""

    per_image: int = PER_IMAGE
    seed: int = option(0, "seed of the choice of requests")


@dataclass(frozen=True, kw_only=True)
class DataOptions:
    """Options: the folders of scenes and photographs."""

    tabletop: Path = option(DEFAULT_FOLDER, "folder of simulated scenes", metavar="DIR")
    it2p: Path | None = option(None, "IT2P folder; default: $CLUE_IT2P", metavar="DIR")
    per_image: int = PER_IMAGE


# -------------------------------------------------------------------------------------------------
# Messages while a command runs.


def note(reasons: Iterable[str]) -> None:
    """Print problems on stderr: each thing left out, and why."""
    for reason in reasons:
        print(f"note: {reason}", file=sys.stderr)
