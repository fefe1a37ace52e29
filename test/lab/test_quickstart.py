"""docs/quickstart.ipynb: made from its page, and every cell runs."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from scripts import notebook


def test_the_notebook_is_that_of_the_page() -> None:
    kept = notebook.NOTEBOOK.read_text(encoding="utf-8")
    assert kept == notebook.notebook(), "rerun: python -m scripts.notebook"


def test_every_cell_runs(tmp_path: Path) -> None:
    """As one script without a file, like a kernel's: no Jupyter is among the tools of the tests."""
    cells = json.loads(notebook.NOTEBOOK.read_text(encoding="utf-8"))["cells"]
    code = "\n".join("".join(c["source"]) for c in cells if c["cell_type"] == "code")
    ran = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    if "OpenGL" in ran.stderr:
        pytest.skip(ran.stderr.splitlines()[-1])
    assert ran.returncode == 0, ran.stderr
    made = tmp_path / "runs" / "quickstart"
    settings = json.loads((made / "detector" / "detector.json").read_text())
    assert settings["training"]["steps"] == 2
    assert (made / "ivg" / "ivg.json").is_file()
    assert (made / "mug.png").stat().st_size > 10_000
    assert "clear, questions forbidden" in ran.stdout
    assert "probability of ambiguity: " in ran.stdout
