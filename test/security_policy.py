"""config/sros2/policy.xml, read as SROS2 reads it."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from dataclasses import dataclass, field
from typing import Any

import pytest
from ros_helpers import ROOT, TIMEOUT, isolate, within

POLICY = ROOT / "config" / "sros2" / "policy.xml"
# What a node has only on some occasions: simulated time, compressed images, ROS from Jazzy on, and
# tf2_msgs, vision_msgs, foxglove_msgs and moveit_msgs.
SOMETIMES = {"/clock", "/image/compressed", "/depth/compressedDepth", "get_type_description"}
SOMETIMES |= {"/tf", "/tf_static", "/perception/annotations", "/perception/collision_object"}
SOMETIMES |= {"/perception/detections", "/perception/detections_3d"}


@dataclass
class Allowed:
    """What one enclave may do, by full names."""

    publish: set[str] = field(default_factory=set)
    subscribe: set[str] = field(default_factory=set)
    reply: set[str] = field(default_factory=set)
    request: set[str] = field(default_factory=set)


def full(name: str, namespace: str, node: str) -> str:
    """Return the name as the graph has it."""
    if name.startswith("~/"):
        name = f"{node}{name[1:]}"
    return name if name.startswith("/") else f"{namespace.rstrip('/')}/{name}"


def read_policy() -> dict[str, Allowed]:
    """Map nodes to what they may do; an action is its services and topics."""
    found: dict[str, Allowed] = {}
    for profile in ET.parse(POLICY).getroot().iter("profile"):
        node, namespace = profile.attrib["node"], profile.attrib["ns"]
        allowed = found.setdefault(node, Allowed())
        for group in profile:
            names = [full((item.text or "").strip(), namespace, node) for item in group]
            for what, rule in group.attrib.items():
                assert rule == "ALLOW", f"{node}: {what} is {rule}"
                if what == "execute":
                    allowed.publish |= {f"{n}/_action/{p}" for n in names for p in ACTION_TOPICS}
                    allowed.reply |= {f"{n}/_action/{p}" for n in names for p in ACTION_SERVICES}
                elif what == "call":
                    allowed.subscribe |= {f"{n}/_action/{p}" for n in names for p in ACTION_TOPICS}
                    allowed.request |= {f"{n}/_action/{p}" for n in names for p in ACTION_SERVICES}
                else:
                    getattr(allowed, what).update(names)
    return found


ACTION_TOPICS = ("feedback", "status")
ACTION_SERVICES = ("send_goal", "cancel_goal", "get_result")


def must_hold(observer: Any, node: str) -> None:
    """Wait until the graph that `observer` sees has what the policy names for a node, no more.

    A participant that missed an update of the graph keeps the old one, so one that came later looks
    as well before the test fails, with the differences.
    """
    if within(TIMEOUT / 4, lambda: not differences(observer, node)):
        return
    import rclpy

    isolate()
    context = rclpy.Context()
    rclpy.init(context=context)
    try:
        later = rclpy.create_node("later_observer", context=context)
        if not within(TIMEOUT / 4, lambda: not differences(later, node)):
            lines = [f"first observer: {line}" for line in differences(observer, node)]
            lines += [f"later observer: {line}" for line in differences(later, node)]
            pytest.fail("the graph is not the policy's\n" + "\n".join(lines))
        later.destroy_node()
    finally:
        context.try_shutdown()


def differences(observer: Any, node: str) -> list[str]:
    """Return what a running node may do and does not, or does and may not, one line each."""
    if (node, "/") not in observer.get_node_names_and_namespaces():
        return [f"{node} is not in the graph"]
    allowed, has = read_policy()[node], graph_of(observer, node)
    found = []
    for what in vars(allowed):
        may, does = getattr(allowed, what), getattr(has, what)
        spare = {name for name in may - does if not name.endswith(tuple(SOMETIMES))}
        found += [f"{node} cannot {what} {name} under the policy" for name in does - may]
        found += [f"{node} may {what} {name} and does not" for name in spare]
    return sorted(found)


def graph_of(observer: Any, node: str) -> Allowed:
    """Return what a running node has, as another node sees it in the graph."""

    def names(pairs: Any) -> set[str]:
        return {name for name, _ in pairs}

    return Allowed(
        names(observer.get_publisher_names_and_types_by_node(node, "/")),
        names(observer.get_subscriber_names_and_types_by_node(node, "/")),
        names(observer.get_service_names_and_types_by_node(node, "/")),
        names(observer.get_client_names_and_types_by_node(node, "/")),
    )
