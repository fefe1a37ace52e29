"""Probabilities of many sentences by many detectors on one backbone, kept on disk.

What is kept is found again only if the pictures and sentences, the base and every file of the
detector are the same.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from tqdm import tqdm

from clue_ros.evaluation.in_domain import Picture, digest
from clue_ros.evaluation.table_one import Trained
from clue_ros.model.checkpoint import load_checkpoint, open_detector
from clue_ros.model.detector import Detector
from clue_ros.model.files import replacing


class Predictor:
    """One model in memory; detectors are opened beside each other as adapters of it."""

    def __init__(self, model: str | Path, device: str, folder: Path) -> None:
        self._model, self._device, self._folder = model, device, folder
        self._checkpoint = load_checkpoint(model, device)
        self._open: dict[Trained, Detector] = {}

    def threshold(self, row: Trained) -> float:
        """From which probability on the detector says ambiguous."""
        return float(self._detector(row).settings.threshold)

    def probabilities(self, row: Trained, pictures: Sequence[Picture]) -> list[float]:
        """One a sentence, in the pictures' order."""
        made_from = self._made_from(row, pictures)
        path = self._folder / f"{row.label}-{made_from[:16]}.json"
        if path.is_file():
            kept = json.loads(path.read_text(encoding="utf-8"))
            return [float(chance) for chance in kept["probabilities"]]
        chances = self._measure(self._detector(row), pictures, row.label)
        self._folder.mkdir(parents=True, exist_ok=True)
        content = {"detector": row.label, "made_from": made_from, "probabilities": chances}
        with replacing(path) as partial:
            partial.write_text(json.dumps(content), encoding="utf-8")
        return chances

    def _measure(self, detector: Detector, pictures: Sequence[Picture], label: str) -> list[float]:
        chances: list[float] = []
        for picture in tqdm(pictures, desc=label, disable=not sys.stderr.isatty()):
            texts = [text for text, _ in picture.sentences]
            found = self._checkpoint.chances(detector, picture.load(), texts)
            chances += [round(chance, 6) for chance in found]
        return chances

    def _detector(self, row: Trained) -> Detector:
        if row not in self._open:
            kept = self._checkpoint
            which = row.name if row.folder is None else row.folder
            self._open[row] = open_detector(
                kept.backbone, kept.adapters, kept.processor, which, adapter=row.label
            )
        return self._open[row]

    def _made_from(self, row: Trained, pictures: Sequence[Picture]) -> str:
        """Hex SHA-256 of all that the probabilities follow from."""
        sha = hashlib.sha256(
            f"{row.label} {digest(pictures)} {self._checkpoint.fingerprint()}".encode()
        )
        for path in sorted(row.folder.iterdir()) if row.folder is not None else []:
            if path.suffix in (".json", ".safetensors"):
                sha.update(path.name.encode() + path.read_bytes())
        return sha.hexdigest()
