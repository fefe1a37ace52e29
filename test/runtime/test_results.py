"""Figures are data: results/*.json, and the pages that scripts/tables writes from them."""

from __future__ import annotations

import datetime
import json
import math
import re
import shlex
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from command_lines import understand
from safetensors import safe_open

ROOT = Path(__file__).resolve().parents[2]
FILES = sorted((ROOT / "results").glob("*.json"))
REQUIRED = {"title", "command", "commit", "date", "seeds", "machine", "values"}
OPTIONAL = {"n", "goal", "note"}
# What only a measurement is as exact as (82.0 %, 0.855); and any share, where a reader looks first.
EXACT = re.compile(r"\b(?:\d+\.\d+ ?%|0\.[1-9]\d\d)(?!\d)")
SHARE = re.compile(r"\d ?%|\d of (?:the )?\d|\b0\.\d+(?![.\d])")
FIRST_PAGES = (ROOT / "README.md", ROOT / "models" / "household" / "README.md")


def load_script() -> ModuleType:
    """Import scripts/tables, whose name has no ending."""
    loader = SourceFileLoader("tables", str(ROOT / "scripts" / "tables"))
    spec = spec_from_loader("tables", loader)
    assert spec is not None
    module = module_from_spec(spec)
    loader.exec_module(module)
    return module


tables: Any = load_script()
each_file = pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
each_page = pytest.mark.parametrize(
    "page", tables.pages(), ids=lambda page: page.relative_to(ROOT).as_posix()
)


def understand_any(command: str) -> None:
    """Raise ValueError for a command line that `clue`, scripts or benchmarks do not know."""
    words = shlex.split(command)
    if words[0] == "clue":
        understand(command.removeprefix("clue "))
        return
    path = ROOT / words[words[0] == "python"]
    if not path.is_file():
        raise ValueError(f"there is no {path.relative_to(ROOT)}")
    texts = [path.read_text(encoding="utf-8"), (ROOT / "benchmarks" / "common.py").read_text()]
    fields = re.findall(r"^    (\w+): [^=\n]+ = (?:option|required)\(", "\n".join(texts), re.M)
    known = {f"--{field.replace('_', '-')}" for field in fields}
    known |= set(re.findall(r"--[a-z][\w-]*", texts[0]))
    for word in words:
        if word.startswith("--") and word not in known:
            raise ValueError(f"{path.name} has no option {word}")


@each_file
def test_a_file_says_where_its_figures_come_from(path: Path) -> None:
    data = json.loads(path.read_text(encoding="utf-8"))
    assert set(data) >= REQUIRED
    assert set(data) <= REQUIRED | OPTIONAL
    assert re.fullmatch(r"[0-9a-f]{7,40}", data["commit"])
    datetime.date.fromisoformat(data["date"])
    assert all(isinstance(seed, int) for seed in data["seeds"])
    assert all(data[key] for key in ("title", "machine", "values"))
    assert not set(data["values"]) & set(data), "a path would have two meanings"


@each_file
def test_a_file_names_commands_that_exist(path: Path) -> None:
    given = json.loads(path.read_text(encoding="utf-8"))["command"]
    for command in [given] if isinstance(given, str) else given:
        understand_any(command)


@pytest.mark.parametrize(
    "command",
    ["clue eval nothing", "clue eval photos --no-such", "python benchmarks/no.py", "scripts/no"],
)
def test_a_command_that_does_not_exist_is_noticed(command: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        understand_any(command)


def test_every_page_has_the_figures_of_the_data(capsys: pytest.CaptureFixture[str]) -> None:
    status = tables.main(["--check"])
    assert status == 0, "".join(capsys.readouterr())


def test_every_file_and_every_table_is_on_a_page() -> None:
    figures = tables.Figures()
    shown = {
        what
        for page in tables.pages()
        for _, what, *_ in tables.rendered(page.read_text("utf-8"), figures, page.parent)
    }
    assert {path.stem for path in FILES} == figures.used
    assert set(figures.tables) <= shown


@each_page
def test_no_page_states_a_figure_by_hand(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    for begin, _, old, _ in reversed(
        list(tables.rendered(text, tables.Figures(), page.parent)),
    ):
        text = text[:begin] + text[begin + len(old) :]
    prose = re.sub(r"<!-- .*? -->|^    .*$|`[^`\n]*`", "", text, flags=re.MULTILINE)
    assert (SHARE if page in FIRST_PAGES else EXACT).findall(prose) == []


def test_no_layout_states_a_figure_by_hand() -> None:
    for name, rows in tables.Figures().tables.items():
        assert EXACT.findall(re.sub(r"\{[^{}]*\}", "", rows)) == [], name


def test_the_parameters_are_those_of_the_weights() -> None:
    def parameters(file: str) -> dict[str, int]:
        with safe_open(ROOT / "models" / "household" / file, framework="numpy") as weights:
            return {key: math.prod(weights.get_slice(key).get_shape()) for key in weights.keys()}  # noqa: SIM118

    figures = tables.Figures()
    base = parameters("model.safetensors")
    stem = [n for name, n in base.items() if re.search(r"patch_embedding\.(first|stages)\.", name)]
    assert figures.look_up("household#parameters") == {
        "base": sum(base.values()),
        "detector": sum(parameters("detector/adapter_model.safetensors").values()),
        "cnn": sum(parameters("detector/head.safetensors").values()),
        "ivg": sum(parameters("ivg/adapter_model.safetensors").values()),
    }
    assert figures.look_up("household#millions") == round(sum(base.values()) / 1e6, 2)
    assert figures.look_up("household#stem_millions") == round(sum(stem) / 1e6, 2)
    config = json.loads((ROOT / "models" / "household" / "config.json").read_text())
    assert figures.look_up("household#blocks") == config["text_config"]["num_hidden_layers"]
    assert figures.look_up("household#pixels") == config["vision_config"]["image_size"]


# scripts/tables itself, on a small repository


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A repository with one measurement, one table and a README that shows both."""
    (tmp_path / "docs").mkdir()
    (tmp_path / "results").mkdir()
    (tmp_path / "results" / "m.json").write_text(
        json.dumps(
            {
                "command": "clue eval photos",
                "commit": "1234567",
                "date": "2026-11-28",
                "seeds": [0],
                "machine": "two cores",
                "n": {"clear": 1200},
                "values": {
                    "right": 0.82,
                    "both": {"mean": 0.827, "sd": 0.01},
                    "time": {"median": 0.5, "low": 0.4, "high": 0.6},
                    "part": {"share": 0.5, "n": 12},
                    "hits": {"count": 17, "n": 27},
                    "kinds": {"mug": [1, 2], "cup": None},
                },
            }
        )
    )
    (tmp_path / "results" / "tables.md").write_text(
        "# Layouts\n\n## kinds\n\n| kind | seeds |\n| --- | --- |\n| {*} | {m#kinds.*:.1f} |\n"
    )
    (tmp_path / "README.md").write_text(
        "Right: <!-- figure: m#right:.1% -->?<!-- /figure -->.\n\n"
        "<!-- table: kinds -->\n<!-- /table -->\n<!-- source: m -->\n<!-- /source -->\n"
    )
    return tmp_path


def test_the_pages_are_written_and_then_checked(
    repository: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert tables.main(["--check"], repository) == 1
    assert "README.md:1: m#right:.1% differs" in capsys.readouterr().out
    assert tables.main([], repository) == 0
    assert (repository / "README.md").read_text() == (
        "Right: <!-- figure: m#right:.1% -->82.0 %<!-- /figure -->.\n\n"
        "<!-- table: kinds -->\n| kind | seeds |\n| --- | --- |\n"
        "| mug | 1.0, 2.0 |\n| cup | - |\n<!-- /table -->\n"
        "<!-- source: m -->\n    scripts/run clue eval photos\n"
        "- [m](results/m.json): commit 1234567, 2026-11-28; seed 0; machine: two cores.\n"
        "<!-- /source -->\n"
    )
    assert tables.main(["--check"], repository) == 0


@pytest.mark.parametrize(
    ("reference", "text"),
    [
        ("m#right", "0.82"),
        ("m#right:.0%", "82 %"),
        ("m#n.clear:,", "1,200"),
        ("m#both:.1%", "82.7 ± 1.0 %"),
        ("m#time:.1f", "0.5 (0.4 to 0.6)"),
        ("m#part:.0%", "50 % of 12"),
        ("m#hits", "17 of 27"),
        ("m#kinds.mug.1", "2"),
        ("published#TABLE_2.AmbResVLM.0.3:.2f", "0.68"),
    ],
)
def test_a_reference_is_shown_in_its_format(repository: Path, reference: str, text: str) -> None:
    assert tables.Figures(repository).text(reference) == text


@pytest.mark.parametrize(
    "page",
    [
        "A <!-- figure: m#wrong -->?<!-- /figure -->.",
        "A <!-- figure: other#right -->?<!-- /figure -->.",
        "A <!-- figure: m#kinds -->?<!-- /figure -->.",
        "A <!-- figure: m#right:q -->?<!-- /figure -->.",
        "A <!-- figure: right -->?<!-- /figure -->.",
        "- <!-- figure: m#right -->0.82<!-- /figure --> begins the line.",
        "<!-- table: kinds -->\n",
        "<!-- table: other -->\n<!-- /table -->\n",
    ],
)
def test_a_marker_that_means_nothing_is_refused(
    repository: Path, page: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (repository / "README.md").write_text(page)
    assert tables.main([], repository) == 1
    assert capsys.readouterr().err.startswith("README.md: ")
    assert (repository / "README.md").read_text() == page
