"""The manual as a site: `scripts/docs` builds it without a warning, with every page in a part."""

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("sphinx", reason="the extra docs is not installed")

ROOT = Path(__file__).resolve().parents[2]


def build(source: Path, out: Path) -> subprocess.CompletedProcess[str]:
    words = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-b", "html"]
    return subprocess.run(
        [*words, str(source), str(out)], capture_output=True, text=True, check=False, timeout=600
    )


def test_the_site_builds_without_a_warning(tmp_path: Path) -> None:
    done = build(ROOT / "docs", tmp_path)
    assert done.returncode == 0, done.stderr
    index = (tmp_path / "index.html").read_text(encoding="utf-8")
    for page in sorted((ROOT / "docs").glob("*.md")):
        if page.stem not in ("README", "index"):
            assert f'href="{page.stem}.html"' in index, f"{page.name} is in no part of the site"
    assert "--max-risk" in (tmp_path / "cli.html").read_text(encoding="utf-8")
    assert "force_grounding" in (tmp_path / "api.html").read_text(encoding="utf-8")
