"""What the launch file starts, with stand-ins for launch and launch_ros (no wheels have them)."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, ClassVar

import pytest

INSTALLED: dict[str, str] = {}  # packages beside clue_ros, and where they are
LAUNCH = Path(__file__).resolve().parents[2] / "launch" / "clue.launch.py"


class Context(dict[str, str]):
    """Stands in for LaunchContext: the arguments' values."""

    environment: ClassVar[dict[str, str]] = {}
    launch_configurations: ClassVar[dict[str, str]] = {}


class Configuration:
    """Stands in for LaunchConfiguration: the context is a plain dict."""

    def __init__(self, name: str) -> None:
        self.name = name

    def perform(self, context: dict[str, str]) -> str:
        """Return the argument's value."""
        return context[self.name]


def launch_file(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Return the launch file as a module."""
    anything = SimpleNamespace
    modules: dict[str, dict[str, Any]] = {
        "ament_index_python": {},
        "ament_index_python.packages": {
            "PackageNotFoundError": KeyError,
            "get_package_prefix": INSTALLED.__getitem__,
            "get_package_share_directory": lambda _name: str(LAUNCH.parents[1]),
        },
        "launch": {"Action": anything, "LaunchContext": dict, "LaunchDescription": anything},
        "launch.actions": {
            "DeclareLaunchArgument": anything,
            "LogInfo": anything,
            "OpaqueFunction": anything,
            "SetEnvironmentVariable": anything,
        },
        "launch.substitutions": {"LaunchConfiguration": Configuration},
        "launch_ros": {},
        "launch_ros.actions": {"LifecycleNode": anything, "Node": anything},
        "launch_ros.parameter_descriptions": {"ParameterValue": lambda value, **_: value},
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
    return file


def values(file: ModuleType, **given: str) -> Context:
    """Return the arguments' values: the defaults, and those given."""
    return Context({name: default for name, default, *_ in file.ARGUMENTS} | given)


def start(monkeypatch: pytest.MonkeyPatch, **given: str) -> dict[str, SimpleNamespace]:
    """Return the nodes that the file would start, by name."""
    file = launch_file(monkeypatch)
    return {node.name: node for node in file.start(values(file, **given))}


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


def test_a_wrapper_gets_its_candidates_and_its_language_model(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from clue_ros.nodes.parameter_tables import PERCEPTION
    from clue_ros.nodes.parameters import find

    given = {
        "model": "wrapper",
        "candidates": "topic:/detections,base:household",
        "language_model": "2026-11-25",  # a folder that looks like a date
    }
    perception = start(monkeypatch, **given)["perception"]
    assert parameters(perception) == {"autostart": True} | given
    for name, value in given.items():
        declared = find(PERCEPTION, name)
        assert declared is not None
        assert declared.problem(value) is None


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


@pytest.mark.parametrize(
    ("argument", "value", "allowed"),
    [
        ("voice", "yes", "true or false"),
        ("autostart", "on", "true or false"),
        ("rviz", "rviz2", "true or false"),
        ("log_level", "bad", "debug, info, warn, error or fatal"),
        ("device", "gpu", "auto, cpu, cuda, cuda:0, ..."),
        ("image_transport", "theora", "raw or compressed"),
        ("image", "", "a topic, such as /camera/image_raw"),
        ("image", "/camera/image raw", "a topic, such as /camera/image_raw"),
        ("namespace", "left-arm", "a namespace, such as left_arm"),
        ("ask_again_after", "-1", "seconds, from 0 to 3600"),
        ("ask_again_after", "4000", "seconds, from 0 to 3600"),
        ("language", "en_US", "a tag, such as en-US"),
        ("speech_source", "mikrofon", "microphone, topic, or an existing audio file or folder"),
        ("params_file", "no_such_file.yaml", "an existing file"),
    ],
)
def test_a_wrong_value_ends_the_launch_with_one_line(
    monkeypatch: pytest.MonkeyPatch, argument: str, value: str, allowed: str
) -> None:
    with pytest.raises(RuntimeError) as caught:
        start(monkeypatch, **{argument: value})
    assert str(caught.value) == f"{argument}:={value} is not possible; allowed: {allowed}"


def test_values_are_spelled_as_launch_spells_them(monkeypatch: pytest.MonkeyPatch) -> None:
    for yes in ("true", "True", "TRUE", "1"):
        assert "tts" in start(monkeypatch, voice=yes)
    for no in ("false", "False", "0"):
        assert list(start(monkeypatch, voice=no)) == ["perception"]
    for good in (
        {"log_level": "WARN"},
        {"device": "cuda:1"},
        {"device": "cpu"},
        {"namespace": "/robot/left_arm"},
        {"namespace": "/"},
        {"image": "/camera/color/image_raw", "image_transport": "compressed"},
        {"depth": "~/depth"},
        {"ask_again_after": "2.5"},
        {"language": "fr"},
        {"speech_source": str(LAUNCH.parents[1] / "demo" / "voice")},
    ):
        assert "perception" in start(monkeypatch, **good)


def test_viewers_show_the_topics_of_the_launch(monkeypatch: pytest.MonkeyPatch) -> None:
    file = launch_file(monkeypatch)
    assert file.viewers(values(file)) == []
    both = values(file, rviz="true", foxglove="true", namespace="arm", image="/eye/image_raw")
    no_rviz, no_bridge = file.viewers(both)
    assert "rviz:=true: the package rviz2 is not installed" in no_rviz.msg
    assert "foxglove:=true: the package foxglove_bridge is not installed" in no_bridge.msg
    for message in (no_rviz.msg, no_bridge.msg):
        text = Path(message.split("its layout is ")[1]).read_text()
        assert "/eye/image_raw" in text
        assert "/arm/perception/debug_image" in text
    monkeypatch.setitem(INSTALLED, "rviz2", "/opt/ros")
    monkeypatch.setitem(INSTALLED, "foxglove_bridge", "/opt/ros")
    rviz, bridge, hint = file.viewers(both)
    assert (rviz.package, bridge.package) == ("rviz2", "foxglove_bridge")
    assert "/eye/image_raw" in Path(rviz.arguments[1]).read_text()
    assert hint.msg.endswith("clue.json")
