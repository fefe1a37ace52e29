# Copyright 2026 clue_ros contributors
# SPDX-License-Identifier: Apache-2.0
"""Options of loading and of the policy: one object for the engine, the commands and the nodes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from clue_ros.errors import ModelError
from clue_ros.model.loading import DEFAULT_MODEL, is_number
from clue_ros.model.multi_view import MAX_VIEWS
from clue_ros.model.quantization import NONE

POLICIES = ("detector", "decoder", "both", "zero-shot")
OPENVINO, TORCH = "openvino", "torch"
BACKENDS = ("auto", OPENVINO, TORCH)
DEFAULT_POLICY = "both"  # right more often than either, for 2 to 4 % of a reply's time


@dataclass(frozen=True)
class LoadOptions:
    """A model and its settings. Raises ModelError for a value that no model takes.

    Attributes:
        model: an embedded model's name, a model folder, a hub id, or "wrapper".
        device: "auto" (a GPU if there is one), "cpu", "cuda", "cuda:1".
        backend: what computes: "openvino" (a CPU), "torch" (any device), or "auto", which takes
            torch for a GPU, quantised weights and a large decoder, else OpenVINO.
        dtype: "auto" (bfloat16 on a GPU; on a CPU "mixed" where that is faster, else "float32"),
            "float32", "mixed" (float32 with matrix products in bfloat16), "bfloat16", "float16".
        quantization: "none", or "int8" or "nf4" (4 bits) for the decoder's weights, which needs
            bitsandbytes.
        revision: a hub id's branch, tag or commit (as well: "owner/name@revision").
        detector: the folder of another detector that `clue train detector` made, or a baseline's
            name ("decoder-yes-no", "candidate-count", "decoder-first"); None: the model's own.
        head: a detector's head that is the user's own code, as MODULE:CLASS; a folder with such a
            head loads only where it is named here. Torch computes it.
        ivg: the folder of another adapter B; None: the model's own.
        mask_decoder: the safetensors file of PaliGemma's mask decoder; None: the file
            mask_decoder.safetensors in the model's folder, if it is there.
        policy: who decides between asking and pointing, of POLICIES (`clue_ros.model.policies`).
        threshold: probability of ambiguity from which to ask, 0..1; None: the model's own.
        num_views: views of the picture that agree on the box, 1..5; None: the model's own.
        doubtful_score: the first view's score up to which the others are looked at, 0..1; None: the
            model's own.
        max_risk: share of requests that may end in a wrong box without a confirmation, above 0 and
            below 1; None: no bound (`clue_ros.model.risk`).
        calibration: the file of `clue calibrate` that supports it; None: calibration.json beside
            the taught words, or else in the model's folder, if it is there.
        memory: the folder of the objects that people showed and named
            (`clue_ros.model.word_memory`); None: folder words of the model, or
            else the user's own; "": kept while the program runs.
        candidates: of "wrapper" alone, sources of boxes or lines that name them
            (`clue_ros.wrapper.sources`).
        language_model: of "wrapper" alone, a hub id, a folder, a GGUF file or a server's address;
            None: rules choose.
    """

    model: str | Path = DEFAULT_MODEL
    device: str = field(default="auto", kw_only=True)
    dtype: str = field(default="auto", kw_only=True)
    backend: str = field(default="auto", kw_only=True)
    quantization: str = field(default=NONE, kw_only=True)
    revision: str | None = field(default=None, kw_only=True)
    detector: str | Path | None = field(default=None, kw_only=True)
    head: str | None = field(default=None, kw_only=True)
    ivg: str | Path | None = field(default=None, kw_only=True)
    mask_decoder: str | Path | None = field(default=None, kw_only=True)
    policy: str = field(default=DEFAULT_POLICY, kw_only=True)
    threshold: float | None = field(default=None, kw_only=True)
    num_views: int | None = field(default=None, kw_only=True)
    doubtful_score: float | None = field(default=None, kw_only=True)
    max_risk: float | None = field(default=None, kw_only=True)
    calibration: str | Path | None = field(default=None, kw_only=True)
    memory: str | Path | None = field(default=None, kw_only=True)
    candidates: Sequence[Any] = field(default=(), kw_only=True)
    language_model: str | Path | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        """Refuse what no model takes."""
        if self.backend not in BACKENDS:
            raise ModelError(
                f"backend {self.backend!r} is unknown: want one of {', '.join(BACKENDS)}"
            )
        check_policy(self.policy)
        check_threshold(self.threshold)
        check_views(self.num_views)
        check_score(self.doubtful_score)
        check_max_risk(self.max_risk)

    @classmethod
    def of(cls, model: str | Path | LoadOptions, settings: dict[str, Any]) -> LoadOptions:
        """Options from a model's name and other attributes, or those given with some replaced."""
        if isinstance(model, LoadOptions):
            return replace(model, **settings) if settings else model
        return cls(model, **settings)


def check_policy(policy: str) -> None:
    """Raises ModelError unless there is a policy of this name."""
    if policy not in POLICIES:
        raise ModelError(f"policy {policy!r} is unknown: want one of {', '.join(POLICIES)}")


def check_threshold(threshold: float | None) -> None:
    """Raises ModelError unless this is None or a number from 0 to 1."""
    if threshold is not None and not is_number(threshold, 0, 1):
        raise ModelError(f"threshold {threshold!r} is no probability: want a number from 0 to 1")


def check_views(number: int | None) -> None:
    """Raises ModelError unless this is None or a whole number from 1 to MAX_VIEWS."""
    if number is not None and not (isinstance(number, int) and is_number(number, 1, MAX_VIEWS)):
        raise ModelError(f"num_views {number!r}: want a whole number from 1 to {MAX_VIEWS}")


def check_score(score: float | None) -> None:
    """Raises ModelError unless this is None or a number from 0 to 1."""
    if score is not None and not is_number(score, 0, 1):
        raise ModelError(f"doubtful_score {score!r} is no score: want a number from 0 to 1")


def check_max_risk(max_risk: float | None) -> None:
    """Raises ModelError unless this is None or a number above 0 and below 1."""
    if max_risk is not None and not (is_number(max_risk, 0, 1) and 0 < max_risk < 1):
        raise ModelError(
            f"max_risk {max_risk!r} is no share: want a number above 0 and below 1, such as 0.05"
        )
