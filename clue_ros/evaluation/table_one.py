"""Table I from probabilities: accuracy, precision, recall, F1 of each detector in each domain."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from clue_ros.evaluation.calibration import Calibration, calibration
from clue_ros.evaluation.in_domain import Picture
from clue_ros.evaluation.metrics import Counts, count
from clue_ros.evaluation.tables import spread, table

METRICS = ("accuracy", "precision", "recall", "f1")


@dataclass(frozen=True)
class Trained:
    """One detector: a variant's folder of one seed, or a baseline (no seed, no folder)."""

    name: str
    seed: int | None
    folder: Path | None

    @property
    def label(self) -> str:
        """A name of its own, fit for files and adapters."""
        return self.name if self.seed is None else f"{self.name}-seed{self.seed}"


@dataclass(frozen=True)
class Judged:
    """A detector's probabilities per domain, beside the truth and where each picture is from."""

    detector: Trained
    threshold: float
    chances: Mapping[str, Sequence[float]]
    labels: Mapping[str, Sequence[bool]]
    sources: Mapping[str, Sequence[str]]

    def counts(self, domain: str, source: str | None = None) -> Counts:
        """Truth against decision, of all pictures of a domain or of one source."""
        rows = zip(self.labels[domain], self.chances[domain], self.sources[domain], strict=True)
        return count((label, p >= self.threshold) for label, p, s in rows if source in (None, s))

    def calibration(self, domain: str) -> Calibration:
        """How far its probabilities are off in a domain."""
        return calibration(self.chances[domain], self.labels[domain])


class TableOne:
    """All detectors, grouped by name in the order they came."""

    def __init__(self, judged: Sequence[Judged]) -> None:
        self._rows: dict[str, list[Judged]] = {}
        for row in judged:
            self._rows.setdefault(row.detector.name, []).append(row)

    @property
    def domains(self) -> list[str]:
        """Those that were measured."""
        return list(next(iter(self._rows.values()))[0].chances)

    def summary(self) -> dict[str, Any]:
        """As ``clue eval detectors --json`` prints it."""
        first = next(iter(self._rows.values()))[0]
        return {
            "n": {domain: len(labels) for domain, labels in first.labels.items()},
            "detectors": [
                {"name": name, "title": title(name), "seeds": [self._seed(r) for r in rows]}
                for name, rows in self._rows.items()
            ],
        }

    def _seed(self, row: Judged) -> dict[str, Any]:
        out: dict[str, Any] = {"seed": row.detector.seed, "threshold": row.threshold}
        for domain in row.chances:
            figures = _metrics(row.counts(domain)) | {"n": len(row.labels[domain])}
            by_source = {
                source: _metrics(row.counts(domain, source))
                for source in sorted(set(row.sources[domain]))
            }
            errors = row.calibration(domain).summary()
            out[domain] = figures | {"by_source": by_source, "calibration": errors}
        return out

    def text(self, *, markdown: bool = False) -> str:
        """Table I's layout: four figures a domain, mean and standard deviation over seeds."""
        short = {"in_domain": "in", "out_of_domain": "out"}
        names = {"accuracy": "acc.", "precision": "prec.", "recall": "rec.", "f1": "F1"}
        header = ["detector"]
        for domain in self.domains:
            header += [f"{short[domain]} {names[m]}" for m in METRICS] + [f"{short[domain]} ECE"]
        lines: list[list[str]] = []
        for name, rows in self._rows.items():
            cells = [title(name)]
            for domain in self.domains:
                counts = [row.counts(domain) for row in rows]
                cells += [
                    spread([float(getattr(c, m)) for c in counts], markdown=markdown)
                    for m in METRICS
                ]
                cells.append(
                    spread([row.calibration(domain).ece for row in rows], markdown=markdown)
                )
            lines.append(cells)
        return table(header, lines, markdown=markdown)

    def calibrations(self, domain: str) -> dict[str, Calibration]:
        """The first seed of each detector, by title."""
        return {title(name): rows[0].calibration(domain) for name, rows in self._rows.items()}

    def records(self, pictures: Mapping[str, Sequence[Picture]]) -> Iterator[dict[str, Any]]:
        """One row a detector and sentence."""
        for rows in self._rows.values():
            for row in rows:
                for domain, shown in pictures.items():
                    asked = [(p, text, label) for p in shown for text, label in p.sentences]
                    for (picture, text, label), chance in zip(
                        asked, row.chances[domain], strict=True
                    ):
                        yield {
                            "detector": row.detector.label,
                            "domain": domain,
                            "image": picture.name,
                            "text": text,
                            "ambiguous": label,
                            "probability": chance,
                            "right": (chance >= row.threshold) == label,
                        }


def title(name: str) -> str:
    """The paper's name of a variant; other names as they are."""
    from clue_ros.model.variants import VARIANTS

    return VARIANTS[name].title if name in VARIANTS else name


def _metrics(counts: Counts) -> dict[str, float]:
    return {name: round(float(getattr(counts, name)), 4) for name in METRICS}
