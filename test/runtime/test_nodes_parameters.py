"""One table of parameters: the YAML file and the documentation say what the code does."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from clue_ros.nodes.parameter_tables import NODES, PERCEPTION
from clue_ros.nodes.parameters import Parameter, disorder, find
from scripts import parameter_docs

ROOT = Path(__file__).parents[2]
EVERY = [(node, parameter) for node, table in NODES.items() for parameter in table]


def config() -> dict[str, Any]:
    data: dict[str, Any] = yaml.safe_load((ROOT / "config" / "clue.yaml").read_text())
    return {name: node["ros__parameters"] for name, node in data.items()}


def test_the_yaml_file_has_every_parameter_with_the_codes_default() -> None:
    declared = {
        f"/**/{node}": {parameter.name: parameter.default for parameter in table}
        for node, table in NODES.items()
    }
    assert config() == declared
    for node, table in declared.items():
        for name, default in table.items():
            assert type(config()[node][name]) is type(default), f"{node}: {name}"


def test_the_yaml_file_and_the_documentation_are_made_from_the_tables() -> None:
    advice = "rerun: python -m scripts.parameter_docs"
    assert parameter_docs.CONFIG.read_text() == parameter_docs.yaml(), advice
    text = parameter_docs.PAGE.read_text()
    assert parameter_docs.documented(text) == text, advice
    for node in NODES:
        assert parameter_docs.markdown(node) in text, node


@pytest.mark.parametrize(("node", "parameter"), EVERY, ids=lambda v: getattr(v, "name", str(v)))
def test_every_number_has_a_range_and_a_unit(node: str, parameter: Parameter) -> None:
    number = isinstance(parameter.default, (int, float)) and type(parameter.default) is not bool
    assert number == (parameter.range is not None) == bool(parameter.unit), node


def test_the_documentation_has_every_launch_argument() -> None:
    tree = ast.parse((ROOT / "launch" / "clue.launch.py").read_text())
    (table,) = (
        node.value
        for node in tree.body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "ARGUMENTS"
    )
    assert isinstance(table, ast.Tuple)
    declared = [ast.unparse(row).split("'")[1] for row in table.elts]
    text = (ROOT / "docs" / "launch.md").read_text().split("| Launch argument |")[1]
    rows = re.findall(r"^\| (`.+?`) \|", text.split("\n\n")[0], re.MULTILINE)
    assert [name for row in rows for name in re.findall("`(.+?)`", row)] == declared


@pytest.mark.parametrize(("node", "parameter"), EVERY, ids=lambda v: getattr(v, "name", str(v)))
def test_defaults_are_valid_and_nonsense_is_not(node: str, parameter: Parameter) -> None:
    assert parameter.problem(parameter.default) is None
    assert parameter.description.endswith((".", ")")), node
    nonsense: list[object] = [None, [1], object()]
    if parameter.range:
        kind = type(parameter.default)
        nonsense += [kind(parameter.range[0] - 2), kind(parameter.range[1] + 1)]
        if kind is float:
            nonsense.append(float("nan"))
    if parameter.choices:
        nonsense.append("no such choice")
    if parameter.pattern:
        nonsense += [""] if parameter.default else []
        nonsense += ["two words", "\n", "x" * 5000 + "!"]
        if (node, parameter.name) != ("console", "perception"):  # a node's name may be absolute
            nonsense.append("/lead")
    for value in nonsense:
        assert parameter.name in (parameter.problem(value) or ""), value


@pytest.mark.parametrize(
    ("node", "name", "good"),
    [
        ("perception", "language", ["en", "en-US", "fr-FR", "zh-Hans-CN"]),
        ("perception", "target_frame", ["", "base_link", "left/tool0"]),
        ("image_source", "frame_id", ["camera", "left/camera_optical_frame"]),
        ("console", "perception", ["perception", "arm/perception", "/arm/perception"]),
    ],
)
def test_texts_that_follow_a_pattern_are_taken(node: str, name: str, good: list[str]) -> None:
    parameter = find(NODES[node], name)
    assert parameter is not None
    assert [parameter.problem(value) for value in good] == [None] * len(good)


def test_a_threshold_is_a_probability_or_minus_one() -> None:
    threshold = find(PERCEPTION, "threshold")
    assert threshold is not None
    assert all(threshold.problem(value) is None for value in (-1.0, 0.0, 0.5, 1.0))
    assert all(threshold.problem(value) for value in (-0.5, 1.5, -2.0))


PAIRS = [
    ("perception", "min_depth", "max_depth"),
    ("speech", "confirm_confidence", "accept_confidence"),
]


def test_every_pair_that_must_be_in_order_is_known() -> None:
    assert [(node, p.name, p.at_most) for node, p in EVERY if p.at_most] == PAIRS


@pytest.mark.parametrize(("node", "low", "high"), PAIRS)
def test_two_values_out_of_order_are_refused_naming_both(node: str, low: str, high: str) -> None:
    table = NODES[node]
    values: dict[str, object] = {parameter.name: parameter.default for parameter in table}
    assert disorder(table, values) is None
    first, second = find(table, low), find(table, high)
    assert first is not None
    assert second is not None
    assert first.range is not None
    assert second.range is not None
    values |= {low: first.range[1], high: second.range[0]}
    reason = disorder(table, values) or ""
    assert low in reason
    assert high in reason
