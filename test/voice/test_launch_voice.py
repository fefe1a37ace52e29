"""What the launch file starts, with stand-ins for launch and launch_ros (no wheels have them)."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, ClassVar

import pytest

LAUNCH = Path(__file__).resolve().parents[2] / "launch" / "clue.launch.py"


class Context(dict[str, str]):
    """Stands in for LaunchContext: the arguments' values."""

    environment: ClassVar[dict[str, str]] = {}


class Configuration:
    """Stands in for LaunchConfiguration: the context is a plain dict."""

    def __init__(self, name: str) -> None:
        self.name = name

    def perform(self, context: dict[str, str]) -> str:
        """Return the argument's value."""
        return context[self.name]


def start(monkeypatch: pytest.MonkeyPatch, **given: str) -> dict[str, SimpleNamespace]:
    """Return the nodes that the file would start, by name."""
    anything = SimpleNamespace
    modules: dict[str, dict[str, Any]] = {
        "ament_index_python": {},
        "ament_index_python.packages": {"get_package_share_directory": lambda _name: "/share"},
        "launch": {"LaunchContext": dict, "LaunchDescription": anything},
        "launch.actions": {
            "DeclareLaunchArgument": anything,
            "OpaqueFunction": anything,
            "SetEnvironmentVariable": anything,
        },
        "launch.substitutions": {"LaunchConfiguration": Configuration},
        "launch_ros": {},
        "launch_ros.actions": {"LifecycleNode": anything},
    }
    for name, contents in modules.items():
        module = ModuleType(name)
        vars(module).update(contents)
        monkeypatch.setitem(sys.modules, name, module)
    spec = importlib.util.spec_from_file_location("clue_launch", LAUNCH)
    assert spec is not None
    assert spec.loader is not None
    file = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(file)
    context = Context({name: default for name, default, _ in file.ARGUMENTS} | given)
    return {node.name: node for node in file.start(context)}


def parameters(node: SimpleNamespace) -> dict[str, Any]:
    """Return what overrides the parameter file."""
    return {name: value for table in node.parameters[1:] for name, value in table.items()}


def test_without_voice_only_perception_is_started(monkeypatch: pytest.MonkeyPatch) -> None:
    nodes = start(monkeypatch)
    assert list(nodes) == ["perception"]
    assert parameters(nodes["perception"]) == {"autostart": True}


def test_voice_starts_ears_and_mouth_that_share_topics(monkeypatch: pytest.MonkeyPatch) -> None:
    nodes = start(
        monkeypatch, voice="true", language="fr-FR", speech="heard", say="said", audio="/mic"
    )
    assert sorted(nodes) == ["perception", "speech", "tts"]
    assert all(parameters(node)["language"] == "fr-FR" for node in nodes.values())
    assert parameters(nodes["speech"])["source"] == "microphone"
    assert parameters(nodes["perception"])["ask_again_after"] > 0
    quiet = start(monkeypatch, voice="true", ask_again_after="0")["perception"]
    assert parameters(quiet)["ask_again_after"] == 0.0
    renamed = {name: dict(node.remappings) for name, node in nodes.items()}
    assert renamed["speech"] == {"speech": "heard", "say": "said", "audio": "/mic"}
    assert renamed["tts"] == {"say": "said"}
    assert renamed["perception"]["speech"] == "heard"
    assert {node.executable for node in nodes.values()} == {
        "perception_node",
        "speech_node",
        "tts_node",
    }


def test_where_security_is_on_each_node_has_its_enclave(monkeypatch: pytest.MonkeyPatch) -> None:
    policy = (LAUNCH.parents[1] / "config" / "sros2" / "policy.xml").read_text()
    assert "--enclave" not in start(monkeypatch)["perception"].ros_arguments
    monkeypatch.setitem(Context.environment, "ROS_SECURITY_ENABLE", "true")
    for name, node in start(monkeypatch, voice="true").items():
        assert node.ros_arguments[-2:] == ["--enclave", f"/clue/{name}"]
        assert f'<enclave path="/clue/{name}">' in policy


def test_the_clock_is_simulated_where_that_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    for node in start(monkeypatch, voice="true").values():
        assert "use_sim_time" not in parameters(node), "the parameter file says it"
    for node in start(monkeypatch, voice="true", use_sim_time="true").values():
        assert parameters(node)["use_sim_time"] is True


def test_every_parameter_that_the_file_sets_exists(monkeypatch: pytest.MonkeyPatch) -> None:
    from clue_ros.nodes.parameter_tables import NODES
    from clue_ros.nodes.parameters import find

    everything = {
        "voice": "true",
        "language": "en-GB",
        "model": "m",
        "device": "cpu",
        "record": "r",
    }
    for name, node in start(monkeypatch, **everything).items():
        for parameter, value in parameters(node).items():
            declared = find(NODES[name], parameter)
            assert declared is not None, f"{name}: {parameter}"
            assert declared.problem(value) is None


def test_camera_info_is_remapped_only_when_it_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    perception = start(monkeypatch, image="/eye/image_raw", depth="/eye/depth")["perception"]
    renamed = dict(perception.remappings)
    assert (renamed["image"], renamed["depth"]) == ("/eye/image_raw", "/eye/depth")
    assert "camera_info" not in renamed, "it is beside the image"
    perception = start(monkeypatch, camera_info="/eye/calibration")["perception"]
    assert dict(perception.remappings)["camera_info"] == "/eye/calibration"
