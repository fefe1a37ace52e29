# Copyright 2026 clue_ros contributors
# SPDX-License-Identifier: Apache-2.0
"""``clue``: the whole system in a terminal, without ROS.

    clue ground IMAGE "pick up the left block"     point, or ask and wait for the answer
    clue teach IMAGE --box X0 Y0 X1 Y1 --name N    show an object and name it
    clue pair IMAGES --out DIR                     two people make dialogues (a web page)
    clue replay BAG "the cup"                      reply to the pictures of a recorded bag
    clue read FILE                                 show how the robot reads utterances
    clue check --model M                           check whether a model would load here
    clue export M --out FOLDER                     write a model with weights of 8 bits
    clue share M --name OWNER/NAME --out FOLDER    a model and its card for others
    clue label PHOTOS                              box and name the objects on photographs
    clue adapt PHOTOS --out M                      fit a model to one table
    clue calibrate DATA --out M                    bound wrong boxes without a confirmation
    clue review FOLDER                             review recorded episodes in a browser
    clue eval it2p|tabletop|photos|dialogue|rec    measure a model
    clue train base|average|boxes|detector|ivg|grpo    train a stage of a model
    clue train joint|oracle|policy|score|views|wrapper|full   train the rest, or all of it
    clue data tabletop|invig|clips                 make simulated scenes, dialogues, videos
    clue data episodes DIR --out OUT               export reviewed episodes
    clue data objects DIR                          list scanned objects for the scenes
    clue data stats SOURCE...                      statistics and plots of dialogues
    clue data select|generate                      choose photographs, make dialogues about them
    clue reproduce clue|invig|wrapper|icseg        a paper's tables, one after the other
    clue bench                                     measure speed beside plain transformers

A command's module is imported only when it is called, so that ``clue --help`` needs no PyTorch and
``clue ground`` refuses bad input at once. Exit status: 0 done, 2 bad input (one line on stderr says
why), 3 a question is waiting for an answer (``clue ground``), 130 interrupted.
"""

from __future__ import annotations

import argparse
import importlib
import os
import shlex
import sys
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NoReturn, cast

from clue_ros.errors import ClueError, ClueWarning
from clue_ros.interrupts import INTERRUPTED, end_imports_at_once
from clue_ros.requirements import missing

BAD_INPUT = 2


@dataclass(frozen=True)
class Command:
    """A command's module, with ``add_arguments(parser)`` and ``run(args) -> int``, and its help."""

    module: str
    help: str


COMMANDS: dict[str, Command | dict[str, Command]] = {
    "ground": Command("clue_ros.ground", "point at the object that a sentence means, or ask"),
    "teach": Command("clue_ros.teach", "show an object and name it"),
    "demo-page": Command(
        "clue_ros.console.demo_page", "open a web page to talk to a model about pictures"
    ),
    "pair": Command(
        "clue_ros.console.pair_command", "open a web page where two people make dialogues"
    ),
    "replay": Command("clue_ros.nodes.replay", "reply to the pictures of a recorded bag"),
    "read": Command("clue_ros.read", "show how the robot reads utterances, without a model"),
    "check": Command("clue_ros.check", "check whether a model would load here, before a download"),
    "export": Command("clue_ros.model.export", "write a model with weights of 8 or 4 bits"),
    "share": Command("clue_ros.model.share", "write a model and its card for others and the hub"),
    "adapt": Command("clue_ros.lab.adapt", "fit a model to one table from a few photographs"),
    "calibrate": Command(
        "clue_ros.lab.evaluation.calibrate", "bound wrong boxes without a confirmation"
    ),
    "label": Command("clue_ros.lab.data.label_page", "box and name objects on photographs"),
    "review": Command("clue_ros.console.review_page", "review recorded episodes in a browser"),
    "eval": {
        "it2p": Command("clue_ros.lab.evaluation.it2p", "photographs of blocks (IT2P)"),
        "tabletop": Command("clue_ros.lab.evaluation.tabletop", "simulated scenes"),
        "asking": Command(
            "clue_ros.lab.evaluation.asking", "dialogues of adapter B alone (clue train grpo)"
        ),
        "ivg": Command(
            "clue_ros.lab.evaluation.table3_guesser", "whole dialogues, must point (Table III)"
        ),
        "dialogue": Command(
            "clue_ros.lab.evaluation.dialogue_tasks", "InViG's four tasks: vqa, vqg, vg, ivg"
        ),
        "detectors": Command(
            "clue_ros.lab.evaluation.table1_detectors", "every detector (Table I)"
        ),
        "layers": Command(
            "clue_ros.lab.evaluation.figure7_layers", "a detector per decoder block (Figure 7)"
        ),
        "maps": Command(
            "clue_ros.lab.evaluation.attention_maps", "attention pictures (Figures 5, 8, 9)"
        ),
        "localisation": Command(
            "clue_ros.lab.evaluation.localisation", "whether peaks hit candidates"
        ),
        "masks": Command("clue_ros.lab.evaluation.masks", "masks against the simulator's"),
        "photos": Command(
            "clue_ros.lab.evaluation.photos", "open photographs, unlike any training"
        ),
        "forms": Command(
            "clue_ros.lab.evaluation.forms", "whether every form of a request gets the same reply"
        ),
        "rec": Command(
            "clue_ros.lab.evaluation.rec", "referring expressions, with any detector (LLM-wrapper)"
        ),
        "rvos": Command(
            "clue_ros.lab.evaluation.rvos", "requests about videos: ask, point, follow"
        ),
        "intent": Command("clue_ros.lab.evaluation.intent", "the reader of utterances"),
        "tasks": Command(
            "clue_ros.lab.evaluation.public_tasks", "PaliGemma's public tasks, without adapters"
        ),
    },
    "train": {
        "intent": Command("clue_ros.lab.training.intent", "the reader of utterances"),
        "base": Command("clue_ros.lab.training.base", "the backbone: vision, then language"),
        "average": Command("clue_ros.lab.training.average", "the mean of several backbones"),
        "detector": Command("clue_ros.lab.training.detector", "adapter A and the ambiguity head"),
        "ivg": Command("clue_ros.lab.training.ivg", "adapter B: questions and locations"),
        "grpo": Command("clue_ros.lab.training.grpo", "adapter B by reinforcement (Hi-GRPO)"),
        "joint": Command("clue_ros.lab.training.joint", "one adapter that judges and replies"),
        "boxes": Command("clue_ros.lab.training.box_head", "the box head: extents of objects"),
        "oracle": Command("clue_ros.lab.training.oracle", "the person: answers about a box"),
        "policy": Command("clue_ros.lab.training.fusion", "the fusion of detector and decoder"),
        "score": Command("clue_ros.lab.training.box_score", "the score of a box, on photographs"),
        "views": Command("clue_ros.lab.training.views", "when a box needs further views"),
        "full": Command("clue_ros.lab.training.full", "all of it for the full-size model"),
        "wrapper": Command(
            "clue_ros.lab.training.wrapper", "a language model that chooses among boxes"
        ),
    },
    "data": {
        "tabletop": Command("clue_ros.lab.simulator.command", "render simulated scenes"),
        "features": Command("clue_ros.lab.training.stored", "a stem's features of scenes, stored"),
        "objects": Command(
            "clue_ros.lab.simulator.object_list", "list the scanned objects of folders"
        ),
        "invig": Command(
            "clue_ros.lab.data.export_invig", "dialogues about scenes, as InViG, with masks"
        ),
        "clips": Command(
            "clue_ros.lab.data.export_clips", "simulated videos with requests, as IC-Seg's"
        ),
        "stats": Command(
            "clue_ros.lab.evaluation.dialogue_statistics", "statistics and plots of dialogues"
        ),
        "select": Command(
            "clue_ros.lab.data.picture_selection", "choose pictures of OpenImages for dialogues"
        ),
        "episodes": Command(
            "clue_ros.lab.data.export_episodes", "reviewed episodes, as InViG or detector's rows"
        ),
        "generate": Command(
            "clue_ros.lab.generation.command", "dialogues about pictures, talked by models"
        ),
        "mask-decoder": Command(
            "clue_ros.lab.data.mask_decoder", "PaliGemma's mask decoder (vae-oid.npz), converted"
        ),
    },
    "reproduce": Command("clue_ros.lab.reproduce", "make a paper's tables and figures, in order"),
    "bench": Command("clue_ros.lab.evaluation.speed", "measure speed beside plain transformers"),
}
_ABOUT = {
    "eval": "measure a model",
    "train": "train a model, stage by stage",
    "data": "make training data",
}


class OneLineParser(argparse.ArgumentParser):
    """argparse that gives its reason in one line, as all refusals here do."""

    def error(self, message: str) -> NoReturn:
        """Refuse the arguments; `main` prints why."""
        raise ClueError(f"{message} (see `{self.prog} --help`)")


def main(argv: Sequence[str] | None = None) -> int:
    """Run one ``clue`` command; the exit status."""
    for stream in (sys.stdout, sys.stderr):
        # A terminal that cannot show a character shows its code: no crash over an accent.
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    end_imports_at_once("clue: interrupted")
    warnings.formatwarning = _note
    try:
        status = _dispatch(list(sys.argv[1:] if argv is None else argv))
        sys.stdout.flush()
        return status
    except ClueError as error:
        print(f"clue: {error}", file=sys.stderr)
        return BAD_INPUT
    except KeyboardInterrupt:
        print("clue: interrupted", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:
        # The reader (head, less) has gone; keep Python from failing again on its last flush.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except OSError as error:
        # A file that cannot be read or written: its name and the reason say it all.
        print(f"clue: {' '.join(str(error).split())}", file=sys.stderr)
        return BAD_INPUT


_usual_format = warnings.formatwarning


def _note(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    line: str | None = None,
) -> str:
    """A warning of ours as one line; others as usual."""
    if issubclass(category, ClueWarning):
        return f"clue: note: {message}\n"
    return _usual_format(message, category, filename, lineno, line)


def _dispatch(words: list[str]) -> int:
    """Find the command that the first words name, let it read the rest, run it."""
    table: dict[str, Command | dict[str, Command]] = COMMANDS
    prog = "clue"
    while True:
        if not words:
            raise ClueError(f"no command given: choose {', '.join(table)} (see `{prog} --help`)")
        if words[0] in ("-h", "--help"):
            _overview(prog, table)
            return 0
        if words[0] == "--version" and prog == "clue":
            print(f"clue {_version()}")
            return 0
        name, words = words[0], words[1:]
        if name not in table:
            raise ClueError(f"no command {prog} {name!r}: choose {', '.join(table)}")
        found, prog = table[name], f"{prog} {name}"
        if isinstance(found, Command):
            return _run(prog, found, words)
        table = cast("dict[str, Command | dict[str, Command]]", found)


def _overview(prog: str, table: dict[str, Command | dict[str, Command]]) -> None:
    lines = [f"usage: {prog} COMMAND ...", ""]
    for name, found in table.items():
        if isinstance(found, Command):
            lines.append(f"  {name:<10} {found.help}")
        else:
            lines.append(f"  {name:<10} {_ABOUT[name]}: {prog} {name} {'|'.join(found)}")
    lines += ["", f"`{prog} COMMAND --help` explains one."]
    print("\n".join(lines), file=sys.stdout)


def _run(prog: str, command: Command, words: list[str]) -> int:
    try:
        module = importlib.import_module(command.module)
        parser = OneLineParser(prog=prog, description=(module.__doc__ or "").strip())
        parser.formatter_class = argparse.RawDescriptionHelpFormatter
        module.add_arguments(parser)
        args = parser.parse_args(words)
        args.command_line = shlex.join([*prog.split(), *words])  # for the records of a measurement
        return int(module.run(args))
    except ModuleNotFoundError as error:
        if error.name is None or error.name.startswith("clue_ros"):
            raise
        raise ClueError(missing(error.name, f"`{prog}`")) from error


def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("clue_ros")
    except PackageNotFoundError:
        return "(not installed: running from the checkout)"


if __name__ == "__main__":
    sys.exit(main())
