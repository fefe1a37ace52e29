# Copyright 2026 clue_ros contributors
# SPDX-License-Identifier: Apache-2.0
"""Say whether a model would load here, and what is missing, before anything is downloaded.

Prints the parts of the model and the policies they allow, device and number format, memory needed
and free, files to download and room for them, the hub's licence and account, and versions. Nothing
is loaded; of a hub repository only config.json and adapter_config.json are fetched.

Exit status: 0 it would load, 2 it would not (each reason on a line of its own).
"""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

from clue_ros.grounders import DEFAULT_CANDIDATES, add_load_arguments, load_options, misplaced
from clue_ros.wrapper import WRAPPER

if TYPE_CHECKING:
    from clue_ros.model.preflight import Part, Report

WILL_NOT_LOAD = 2


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of ``clue check``."""
    add_load_arguments(parser)
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(args: argparse.Namespace) -> int:
    """Run ``clue check``; the exit status."""
    report = inspect(args)
    print(json.dumps(as_json(report)) if args.json else as_text(report))
    return WILL_NOT_LOAD if report.problems else 0


def inspect(args: argparse.Namespace) -> Report:
    """Return the report about the model of these options."""
    options = load_options(args)
    if args.model == WRAPPER:
        from clue_ros.wrapper.preflight import inspect_wrapper

        report = inspect_wrapper(
            replace(options, candidates=options.candidates or (DEFAULT_CANDIDATES,))
        )
    else:
        from clue_ros.model.preflight import inspect_model

        report = inspect_model(options)
    report.problem(misplaced(options))
    return report


def as_json(report: Report) -> dict[str, Any]:
    """The report as ``--json`` prints it; sizes in bytes, null where unknown."""
    parts = [{k: v for k, v in vars(part).items() if k != "sizes"} for part in report.parts]
    wrapper = {"candidates": parts[:-1], "language_model": parts[-1]}
    base, place = report.base, report.disk_folder or None
    return {
        "works": not report.problems,
        "problems": report.problems,
        "notes": report.notes,
        "model": report.model,
        **(wrapper if report.model == WRAPPER else {}),
        "base": base.name if base else None,
        "folder": str(base.folder) if base and base.folder else None,
        "parameters": sum(part.parameters or 0 for part in report.parts) or None,
        "adapters": {name: adapter.place for name, adapter in report.adapters.items()},
        "mask_decoder": report.mask_decoder or None,
        "policies": list(report.policies),
        "policy": report.policies[-1] if report.policies else None,
        "device": report.device,
        "device_name": report.device_name,
        "dtype": report.dtype,
        "quantization": report.quantization,
        "memory": asdict(report.memory),
        "download": {"bytes": report.download, "folder": place, "free": report.disk_free},
        "hub": {"account": report.logged_in, "repositories": [*map(asdict, report.repositories)]},
        "versions": report.versions,
    }


def as_text(report: Report) -> str:
    """The report for a terminal: one fact a line, then what is wrong."""
    from clue_ros.model.sizing import gigabytes

    memory, quantization = report.memory, report.quantization
    decoder = "" if quantization == "none" else f", decoder {quantization}"
    lines = [
        ("model", report.model),
        *_parts(report),
        ("device", f"{report.device} ({report.device_name or 'cannot be used'})"),
        ("dtype", f"{report.dtype or 'unknown'}{decoder}"),
        (
            "memory",
            f"{gigabytes(memory.needed)} needed (weights {gigabytes(memory.weights)}, adapters"
            f" {gigabytes(memory.adapters)}, activations about {gigabytes(memory.activations)}),"
            f" {gigabytes(memory.free)} free",
        ),
    ]
    for repository in report.repositories:
        facts = [f"licence {repository.licence}"] if repository.licence else []
        facts += [f"gated ({repository.gated})"] if repository.gated else []
        if repository.access is not None:
            facts.append("access granted" if repository.access else "no access")
        if not repository.reachable:
            facts.append("could not be asked")
        lines.append(("hub", f"{repository.name}: {', '.join(facts) or 'open'}"))
        for file in repository.files:
            state = "in the cache" if file.cached else "to download"
            lines.append(("", f"  {file.name}  {gigabytes(file.size)}  {state}"))
    if report.repositories:
        lines.append(("account", report.logged_in or "not logged in, or unknown"))
    if report.download:
        room = f"into {report.disk_folder}, {gigabytes(report.disk_free)} free"
        lines.append(("download", f"{gigabytes(report.download)} {room}"))
    lines.append(("versions", ", ".join(f"{n} {v}" for n, v in report.versions.items())))
    lines += [("note", note) for note in report.notes]
    lines += [("problem", problem) for problem in report.problems]
    lines.append(("result", "would not load" if report.problems else "would load"))
    return "\n".join(f"{name:<13}{text}".rstrip() for name, text in lines)


def _parts(report: Report) -> list[tuple[str, str]]:
    """The lines about the parts."""
    if report.model == WRAPPER:
        *sources, chooser = map(_described, report.parts)
        return [*(("candidates", source) for source in sources), ("chooser", chooser)]
    adapters = ", ".join(f"{name} ({each.place})" for name, each in report.adapters.items())
    lines = [("base", _described(report.parts[0])), ("adapters", adapters or "none")]
    if report.mask_decoder:
        lines.append(("mask decoder", report.mask_decoder))
    if report.policies:
        *others, policy = report.policies
        lines.append(("policy", policy + (f" (also {', '.join(others)})" if others else "")))
    return lines


def _described(part: Part) -> str:
    from clue_ros.model.sizing import gigabytes

    if part.kind == "rules":
        return "rules, no language model"
    facts = [part.kind] if part.kind != "base" and part.kind not in part.name else []
    facts += [part.model_type] if part.model_type and part.model_type != part.kind else []
    facts += [f"on {part.base}"] if part.base else []
    facts += [f"{part.parameters / 1e6:.1f} M parameters"] if part.parameters else []
    facts += [gigabytes(part.weights + part.adapters)] if part.weights else []
    facts += [f"in {part.place}"] if part.place and part.place not in part.name else []
    return f"{part.name}: {', '.join(facts + part.facts)}".removesuffix(": ")
