# Copyright 2026 clue_ros contributors
# SPDX-License-Identifier: Apache-2.0
"""Put the copyright and the licence into the first lines of every Python file that lacks them.

Usage: python -m scripts.license_headers    (test/runtime/test_license_headers.py checks)

The tests and the lab go without. The form is that of SPDX, two lines; ament_copyright knows only
the licence's whole notice, so it is not used.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
HEADER = "# Copyright 2026 clue_ros contributors\n# SPDX-License-Identifier: Apache-2.0\n"
PLACES = ("setup.py", "clue_ros", "demo", "benchmarks", "launch", "scripts")
WITHOUT = ROOT / "clue_ros" / "lab"


def files() -> Iterator[Path]:
    """Yield the files that need the header."""
    for place in PLACES:
        path = ROOT / place
        for file in sorted(path.rglob("*.py")) if path.is_dir() else (path,):
            if WITHOUT not in file.parents:
                yield file


def with_header(text: str) -> str:
    """Return a file's text with the header, behind its `#!` line if it has one."""
    first, rest = "", text
    if text.startswith("#!"):
        first, _, rest = text.partition("\n")
        first += "\n"
    return text if rest.startswith(HEADER) else f"{first}{HEADER}{rest}"


def main() -> None:
    """Write the header into the files that lack it."""
    for file in files():
        text = file.read_text(encoding="utf-8")
        if with_header(text) != text:
            file.write_text(with_header(text), encoding="utf-8")
            print(file.relative_to(ROOT))


if __name__ == "__main__":
    main()
