# Copyright 2026 clue_ros contributors
# SPDX-License-Identifier: Apache-2.0
"""The parameters of a perception node that runs elsewhere: read, changed, a new model loaded.

A parameter of the model can change only while perception is unconfigured. `change` then takes the
node down, sets it and brings the node up again, in a thread, as a model may take minutes to load.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

from lifecycle_msgs.msg import Transition
from lifecycle_msgs.srv import ChangeState, GetState
from rcl_interfaces.msg import ParameterEvent
from rcl_interfaces.srv import GetParameters, SetParameters
from rclpy.node import Node
from rclpy.parameter import Parameter as RosParameter
from rclpy.parameter import parameter_value_to_python

from clue_ros.console.robot import Option
from clue_ros.errors import ClueError
from clue_ros.nodes.client import Caller, GroundingError
from clue_ros.nodes.parameter_tables import PERCEPTION
from clue_ros.nodes.parameters import Change, Parameter, Value, find
from clue_ros.nodes.topics import Console
from clue_ros.wrapper import WRAPPER

# The parameters that an operator changes, in the order of the page.
OFFERED = (
    "model",
    "candidates",
    "language_model",
    "policy",
    "threshold",
    "num_views",
    "max_risk",
    "max_questions",
    "force_grounding",
    "answer_timeout",
    "ask_again_after",
    "language",
)
OF_THE_WRAPPER = ("candidates", "language_model")
PERIOD = "diagnostics_period"
READ = (*OFFERED, PERIOD)
AGAIN = 2.0  # seconds until parameters are asked for again: DDS loses requests to a node just found
ANSWER = 10.0  # seconds for a service of perception that answers at once
LOAD = 3600.0  # seconds for a model: downloads count too


class PerceptionSettings:
    """The settings of the perception node `name`, as the page shows and changes them.

    changed: called with the options whenever a value has changed; notice: with a sentence for the
    operator. trouble: the reason that perception gives for not working, or "".
    """

    def __init__(
        self,
        node: Node,
        caller: Caller,
        name: str,
        *,
        changed: Callable[[list[Option]], object],
        notice: Callable[[str], object],
        trouble: Callable[[], str],
    ) -> None:
        self._caller, self._changed, self._notice, self._trouble = caller, changed, notice, trouble
        self.values: dict[str, Value] = {}
        self._known = False  # whether the values are those of the process that runs now
        self._asked_at = float("-inf")
        self._loading = threading.Lock()

        def client(call: Any) -> Any:
            _, _, service = call.name.rpartition("/")
            return call.client(node, name=f"{name}/{service}")

        self._get = client(Console.GET_PARAMETERS)
        self._set = client(Console.SET_PARAMETERS)
        self._state = client(Console.GET_STATE)
        self._change = client(Console.CHANGE_STATE)
        self._full_name = node.resolve_service_name(name)
        Console.PARAMETER_EVENTS.subscribe(node, self._on_event)

    @property
    def period(self) -> float:
        """Seconds between perception's messages on /diagnostics."""
        return float(self.values.get(PERIOD, 1.0))

    # These run in the executor's thread.

    def forget(self) -> None:
        """Perception is gone or was started anew: its values may be others."""
        self._known = False

    def read(self) -> None:
        """Ask for the values, unless they are known."""
        if not self._known and time.monotonic() - self._asked_at >= AGAIN:
            self._ask()

    def _ask(self) -> None:
        if self._get.service_is_ready():
            self._asked_at = time.monotonic()
            request = GetParameters.Request(names=list(READ))
            self._get.call_async(request).add_done_callback(self._on_values)

    def _on_values(self, future: Any) -> None:
        response = future.result()
        # One list for all names: a node without one of them, an older one, answers with none.
        if response is not None and len(response.values) == len(READ):
            values = map(parameter_value_to_python, response.values)
            self.values = dict(zip(READ, values, strict=True))
            self._known = True
            self._changed(self.options())

    def _on_event(self, event: ParameterEvent) -> None:
        changes = (*event.new_parameters, *event.changed_parameters)
        if event.node == self._full_name and any(p.name in READ for p in changes):
            self._ask()

    # The rest runs in any thread.

    def options(self) -> list[Option]:
        """Return the settings with their values; none before they are known."""
        if not self.values:
            return []
        wraps = self.values["model"] == WRAPPER
        names = [name for name in OFFERED if wraps or name not in OF_THE_WRAPPER]
        return [_option(_parameter(name), self.values[name]) for name in names]

    def change(self, name: str, text: str) -> None:
        """Change a setting. Raises ClueError: it cannot have this value, or perception refuses.

        Returns before a model is loaded; a notice then tells how it went.
        """
        if name not in OFFERED:
            raise ClueError(f"{name!r} is no setting of this page")
        parameter = _parameter(name)
        value = _value(parameter, text)
        problem = parameter.problem(value)
        if problem:
            raise ClueError(problem)
        if parameter.change is not Change.UNCONFIGURED:
            self._put(name, value)
            return
        if not self._loading.acquire(blocking=False):
            raise ClueError("a model is being loaded: wait for its end")
        threading.Thread(target=self._reload, args=(name, value), daemon=True).start()

    def _put(self, name: str, value: Value) -> None:
        message = RosParameter(name, value=value).to_parameter_msg()
        request = SetParameters.Request(parameters=[message])
        result = self._call(self._set, request, ANSWER).results[0]
        if not result.successful:
            raise ClueError(result.reason or f"perception refuses {name} {value!r}")

    def _reload(self, name: str, value: Value) -> None:
        """Take perception down, set the parameter, and bring perception up; in a thread."""
        begin = time.monotonic()
        try:
            old = self.values.get(name, value)
            self._notice(f"Perception loads {name} {value!r}; this may take minutes.")
            self._go_down()
            self._put(name, value)
            if self._to(Transition.TRANSITION_CONFIGURE, LOAD):
                self._activate()
                self._notice(f"{name} {value!r} is ready after {time.monotonic() - begin:.0f} s.")
            else:
                reason = self._reason()
                self._notice(f"{reason}. Perception loads {name} {old!r} again.")
                self._put(name, old)
                if not self._to(Transition.TRANSITION_CONFIGURE, LOAD):
                    raise ClueError(f"perception stays unconfigured: {self._reason()}")
                self._activate()
                self._notice(f"{reason}. {name} is {old!r} as before.")
        except ClueError as error:
            self._notice(f"{name} {value!r}: {error}")
        finally:
            self._loading.release()

    def _go_down(self) -> None:
        label = self._call(self._state, GetState.Request(), ANSWER).current_state.label
        if label == "active":
            self._must(Transition.TRANSITION_DEACTIVATE, "deactivate")
            label = "inactive"
        if label == "inactive":
            self._must(Transition.TRANSITION_CLEANUP, "clean up")
        elif label != "unconfigured":
            raise ClueError(f"perception is {label}: wait, and try again")

    def _activate(self) -> None:
        self._must(Transition.TRANSITION_ACTIVATE, "activate")

    def _must(self, transition: int, what: str) -> None:
        if not self._to(transition, ANSWER):
            raise ClueError(f"perception does not {what}: its log says why")

    def _to(self, transition: int, seconds: float) -> bool:
        request = ChangeState.Request(transition=Transition(id=transition))
        return bool(self._call(self._change, request, seconds).success)

    def _call(self, client: Any, request: Any, seconds: float) -> Any:
        try:
            return self._caller.call(client, request, seconds)
        except GroundingError as error:
            raise ClueError(error.message) from error

    def _reason(self) -> str:
        """Wait for the reason that perception gives for a model that it cannot load."""
        end = time.monotonic() + 2 * self.period + 1.0
        while not self._trouble() and time.monotonic() < end:
            time.sleep(0.05)
        return self._trouble() or "the model cannot be loaded: the log of perception says why"


def _parameter(name: str) -> Parameter:
    parameter = find(PERCEPTION, name)
    assert parameter is not None, name
    return parameter


def _option(parameter: Parameter, value: Value) -> Option:
    low, high = parameter.limits or (None, None)
    choices = ("true", "false") if isinstance(parameter.default, bool) else parameter.choices
    return Option(parameter.name, _text(value), parameter.description, choices, low, high)


def _text(value: Value) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _value(parameter: Parameter, text: str) -> Value:
    """Return a setting's text as a value of the parameter's type. Raises ClueError."""
    kind, text = type(parameter.default), text.strip()
    if kind is bool:
        if text.lower() not in ("true", "false"):
            raise ClueError(f"{parameter.name} must be true or false, not {text!r:.60}")
        return text.lower() == "true"
    try:
        return kind(text)
    except ValueError:
        number = "a whole number" if kind is int else "a number"
        raise ClueError(f"{parameter.name} must be {number}, not {text!r:.60}") from None
