# Copyright 2026 clue_ros contributors
# SPDX-License-Identifier: Apache-2.0
"""Write docs/quickstart.ipynb from docs/quickstart.md: each ```python block is a cell of code.

python -m scripts.notebook        # in the repository
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

PAGE = Path(__file__).resolve().parents[1] / "docs" / "quickstart.md"
NOTEBOOK = PAGE.with_suffix(".ipynb")
_CELL = re.compile(r"^```python\n(.*?)^```\n", re.MULTILINE | re.DOTALL)


def notebook() -> str:
    """Return the notebook, without outputs, in Jupyter's format 4.5."""
    pieces = _CELL.split(PAGE.read_text(encoding="utf-8"))
    cells: list[dict[str, Any]] = []
    for number, piece in enumerate(pieces):
        text = piece.strip("\n")
        if not text:
            continue
        cell: dict[str, Any] = {"cell_type": "markdown", "id": f"cell-{number}", "metadata": {}}
        if number % 2:
            cell |= {"cell_type": "code", "execution_count": None, "outputs": []}
        cells.append({**cell, "source": text.splitlines(keepends=True)})
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    metadata = {"kernelspec": kernel, "language_info": {"name": "python"}}
    whole = {"cells": cells, "metadata": metadata, "nbformat": 4, "nbformat_minor": 5}
    return json.dumps(whole, indent=1, ensure_ascii=False) + "\n"


def main() -> int:
    """Write the notebook."""
    NOTEBOOK.write_text(notebook(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
