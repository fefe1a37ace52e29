# Copyright 2026 clue_ros contributors
# SPDX-License-Identifier: Apache-2.0
"""Say whether a model would load here, and what is missing, before anything is downloaded.

Prints the base, the adapters and the policies they allow, device and number format, memory needed
and free, files to download and room for them, the hub's licence and account, and versions. Nothing
is loaded; of a hub repository only config.json and adapter_config.json are fetched. Of model
"wrapper" it prints each source of candidates and the language model.

Exit status: 0 it would load, 2 it would not (each reason on a line of its own).
"""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from clue_ros.grounders import DEFAULT_CANDIDATES, add_load_arguments, load_options, misplaced
from clue_ros.wrapper import WRAPPER

if TYPE_CHECKING:
    from clue_ros.model.preflight import Report
    from clue_ros.wrapper.preflight import WrapperReport

WILL_NOT_LOAD = 2


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of ``clue check``."""
    add_load_arguments(parser)
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(args: argparse.Namespace) -> int:
    """Run ``clue check``; the exit status."""
    report = _inspect_wrapper(args) if args.model == WRAPPER else _inspect(args)
    print(json.dumps(as_json(report)) if args.json else as_text(report))
    return WILL_NOT_LOAD if report.problems else 0


def _inspect(args: argparse.Namespace) -> Report:
    from clue_ros.model.preflight import inspect_model

    report = inspect_model(
        args.model,
        device=args.device,
        dtype=args.dtype,
        quantization=args.quantization,
        detector=args.detector,
        ivg=args.ivg,
        mask_decoder=args.mask_decoder,
    )
    report.problem(misplaced(load_options(args)))
    return report


def _inspect_wrapper(args: argparse.Namespace) -> WrapperReport:
    from clue_ros.wrapper.preflight import inspect_wrapper

    report = inspect_wrapper(
        args.candidates or (DEFAULT_CANDIDATES,),
        args.language_model,
        device=args.device,
        dtype=args.dtype,
        quantization=args.quantization,
    )
    report.problem(misplaced(load_options(args)))
    return report


def as_json(report: Report) -> dict[str, Any]:
    """The report as ``--json`` prints it; sizes in bytes, null where unknown."""
    from clue_ros.wrapper.preflight import WrapperReport

    base = report.base
    parts: dict[str, Any] = {}
    if isinstance(report, WrapperReport):
        parts["candidates"] = [asdict(part) for part in report.sources]
        parts["language_model"] = asdict(report.language_model)
    return {
        "works": not report.problems,
        "problems": report.problems,
        "notes": report.notes,
        "model": report.model,
        **parts,
        "base": base.name if base else None,
        "folder": str(base.folder) if base and base.folder else None,
        "parameters": report.parameters,
        "adapters": report.adapters,
        "mask_decoder": report.mask_decoder or None,
        "policies": list(report.policies),
        "policy": report.policies[-1] if report.policies else None,
        "device": report.device,
        "device_name": report.device_name,
        "dtype": report.dtype,
        "quantization": report.quantization,
        "memory": {**asdict(report.memory), "needed": report.memory.needed},
        "download": {
            "bytes": report.download,
            "folder": report.disk_folder or None,
            "free": report.disk_free,
        },
        "hub": {
            "account": report.logged_in,
            "repositories": [asdict(repository) for repository in report.repositories],
        },
        "versions": report.versions,
    }


def as_text(report: Report) -> str:
    """The report for a terminal: one fact a line, then what is wrong."""
    from clue_ros.model.preflight import gigabytes
    from clue_ros.wrapper import preflight as wrapper

    lines: list[tuple[str, str]] = [("model", report.model)]
    if isinstance(report, wrapper.WrapperReport):
        lines += wrapper.lines(report)
    else:
        lines += _parts(report)
    lines.append(("device", f"{report.device} ({report.device_name or 'cannot be used'})"))
    quantized = "" if report.quantization == "none" else f", decoder {report.quantization}"
    lines.append(("dtype", f"{report.dtype or 'unknown'}{quantized}"))
    memory = report.memory
    lines.append(
        (
            "memory",
            f"{gigabytes(memory.needed)} needed (weights {gigabytes(memory.weights)}, adapters"
            f" {gigabytes(memory.adapters)}, activations about {gigabytes(memory.activations)}),"
            f" {gigabytes(memory.free)} free",
        )
    )
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
        lines.append(
            (
                "download",
                f"{gigabytes(report.download)} into {report.disk_folder},"
                f" {gigabytes(report.disk_free)} free",
            )
        )
    lines.append(("versions", ", ".join(f"{n} {v}" for n, v in report.versions.items())))
    lines += [("note", note) for note in report.notes]
    lines += [("problem", problem) for problem in report.problems]
    lines.append(("result", "would not load" if report.problems else "would load"))
    return "\n".join(f"{name:<13}{text}".rstrip() for name, text in lines)


def _parts(report: Report) -> list[tuple[str, str]]:
    """The lines about a model's base and adapters."""
    lines = []
    base = report.base
    if base is not None:
        count = f", {report.parameters / 1e6:.1f} M parameters" if report.parameters else ""
        place = f" in {base.folder}" if base.folder else ", not downloaded"
        lines.append(("base", f"{base.name}{place}{count}"))
    adapters = ", ".join(f"{name} ({place})" for name, place in report.adapters.items())
    lines.append(("adapters", adapters or "none"))
    if report.mask_decoder:
        lines.append(("mask decoder", report.mask_decoder))
    if report.policies:
        others = f" (also {', '.join(report.policies[:-1])})" if report.policies[1:] else ""
        lines.append(("policy", f"{report.policies[-1]}{others}"))
    return lines
