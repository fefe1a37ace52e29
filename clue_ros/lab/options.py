"""Command-line options declared as fields of frozen dataclasses.

    @dataclass(frozen=True, kw_only=True)
    class MapsOptions:
        model: ModelOptions                        # another such dataclass: its options too
        scenes: int = option(300, "number of simulated scenes", type=at_least(1))

    add_options(parser, MapsOptions)               # --model, --device, ..., --scenes
    options = read_options(MapsOptions, parser.parse_args())

A field `base_dtype` made with `option` is the option `--base-dtype`. Other fields are read from
arguments that the command declares by itself, or keep their default.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Mapping
from dataclasses import MISSING, field, fields, is_dataclass
from pathlib import Path
from types import NoneType
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

T = TypeVar("T")
_is_nested: Callable[[Any], bool] = is_dataclass
_METAVARS = {int: "N", float: "X"}


def option(default: Any, help: str, **more: Any) -> Any:
    """A field that is a command-line option.

    more: settings of argparse's option; exclusive: at most one of these options of the dataclass
    can be given.
    """
    return field(default=default, metadata={"help": help, **more})


def required(help: str, **more: Any) -> Any:
    """A field that is a command-line option and must be given."""
    return field(metadata={"help": help, "required": True, **more})


def add_options(parser: argparse.ArgumentParser, options: type) -> None:
    """Declare the options of a dataclass; a field's type decides how its value is read."""
    hints = get_type_hints(options)
    exclusive: argparse._ActionsContainer | None = None
    for declared in fields(options):
        hint, settings = hints[declared.name], dict(declared.metadata)
        if _is_nested(hint):
            add_options(parser, hint)
        if not settings:
            continue
        # Missing options are not in the namespace: `read_options` then takes the recipe's value or
        # the default, wherever `--recipe` stands.
        settings["default"] = argparse.SUPPRESS
        default = declared.default
        if default is not MISSING and not isinstance(default, (bool, tuple, NoneType)):
            settings["help"] += "; default: " + str(default).replace("%", "%%")
        if hint is bool:
            settings["action"] = "store_true"
        elif bool in get_args(hint):
            settings["action"] = argparse.BooleanOptionalAction
        elif get_origin(hint) is not tuple:
            kind = (get_args(hint) or (hint,))[0]  # of `Path | None`: Path
            settings.setdefault("type", kind)
            if "choices" not in settings and kind in _METAVARS:
                settings.setdefault("metavar", _METAVARS[kind])
        place: argparse._ActionsContainer = parser
        if settings.pop("exclusive", False):
            place = exclusive = exclusive or parser.add_mutually_exclusive_group()
        place.add_argument(f"--{declared.name.replace('_', '-')}", **settings)


def add_recipe(parser: argparse.ArgumentParser, **recipes: Mapping[str, Any]) -> None:
    """Declare `--recipe`: each sets options of the parser; "paper" nothing, unless it is given.

    A given option overrides `--recipe`, before or after it.
    """
    recipes = {"paper": {}, **recipes}
    described = [f"{name}: {_words(values) or 'the defaults'}" for name, values in recipes.items()]
    parser.add_argument(
        "--recipe",
        choices=tuple(recipes),
        action=_Recipe,
        dest=_RECIPE,
        default=argparse.SUPPRESS,
        recipes=recipes,
        help="; ".join([*described, "options that are given hold"]),
    )


_RECIPE = "recipe_values"  # in the namespace


def _words(values: Mapping[str, Any]) -> str:
    """Values as a person types them."""
    flags = ((f"--{key.replace('_', '-')}", value) for key, value in values.items())
    return ", ".join(flag if value is True else f"{flag} {_word(value)}" for flag, value in flags)


def _word(value: Any) -> str:
    return " ".join(map(str, value)) if isinstance(value, tuple) else str(value)


class _Recipe(argparse.Action):
    def __init__(self, *args: Any, recipes: Mapping[str, Mapping[str, Any]], **more: Any) -> None:
        super().__init__(*args, **more)
        self._recipes = recipes

    def __call__(
        self, parser: Any, namespace: argparse.Namespace, values: Any, option_string: Any = None
    ) -> None:
        setattr(namespace, self.dest, self._recipes[values])


def read_options(options: type[T], args: argparse.Namespace) -> T:
    """Build the dataclass from the given arguments, else the recipe's, else the defaults.

    Raises ClueError for invalid values.
    """
    known = {**getattr(args, _RECIPE, {}), **vars(args)}
    values = {
        name: read_options(hint, args) if _is_nested(hint) else known[name]
        for name, hint in get_type_hints(options).items()
        if _is_nested(hint) or name in known
    }
    return options(**{k: tuple(v) if isinstance(v, list) else v for k, v in values.items()})


def at_least(minimum: int) -> Callable[[str], int]:
    """Argparse type of a whole number of `minimum` or more."""

    def whole_number(text: str) -> int:
        number = int(text)
        if number < minimum:
            raise argparse.ArgumentTypeError(f"must be {minimum} or more, not {number}")
        return number

    return whole_number


def above_zero(text: str) -> float:
    """Argparse type of a positive number."""
    number = float(text)
    if not number > 0:
        raise argparse.ArgumentTypeError(f"must be above 0, not {text}")
    return number


def not_negative(text: str) -> float:
    """Argparse type of a number that is 0 or more."""
    number = float(text)
    if not 0 <= number < math.inf:
        raise argparse.ArgumentTypeError(f"must be 0 or more and finite, not {text}")
    return number


def output_file(*suffixes: str) -> Callable[[str], Path]:
    """Argparse type of a file to write; refuses other suffixes and missing folders."""

    def file_name(text: str) -> Path:
        path = Path(text)
        if suffixes and path.suffix.lower() not in suffixes:
            raise argparse.ArgumentTypeError(f"{text!r} must end in {', '.join(suffixes)}")
        if not path.resolve().parent.is_dir():
            raise argparse.ArgumentTypeError(
                f"{path} cannot be written: there is no folder {path.parent}"
            )
        return path

    return file_name


FIGURE = output_file(".png", ".svg", ".pdf")
"""argparse type of a figure to write."""
