"""Time replies against plain transformers, in turns, so that other load affects both alike.

Each repetition runs every row once by each contender: "plain" (transformers and peft as a user
writes them: eager attention with output_attentions, then generate), "best" (the same at
transformers' best settings, in float32 or bfloat16, whichever a short trial finds faster) and
"ours" (`Clue`, as shipped). A row's ratio is the median over the repetitions, with the lowest and
the highest quarter. Every image is new to the model but in "later turn", where the dialogue has
begun. Beside the table stand a fresh process's time to its first answer and its memory, the cost of
our replies with more views, larger images, longer prompts, more turns and more images at once, and
the lower bound of a reply's time on this machine. On a GPU (`--device cuda`) all contenders run in
bfloat16 unless another type is given, and its memory is reported too.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from importlib.metadata import version
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from clue_ros import memory
from clue_ros.dialogue.types import Dialogue, Grounding
from clue_ros.errors import ClueError
from clue_ros.lab.options import add_options, at_least, option, output_file, read_options
from clue_ros.lab.report import Cell, table, with_progress
from clue_ros.model.loading import DEFAULT_MODEL, demo_folder, find_model

if TYPE_CHECKING:
    import torch

    from clue_ros.lab.evaluation.plain_transformers import PlainTransformers

Image = npt.NDArray[np.uint8]
Timed = Callable[[Image, "Request"], float]  # seconds

RANDOM = ("300m", "3b")
TRIALS = 3  # boxes by transformers at its best settings in each type
PLAIN, BEST, OURS = "plain", "best", "ours"
START = {"plain": "clue_ros.lab.evaluation.plain_transformers", "ours": "clue_ros.cli"}


@dataclass(frozen=True)
class Request:
    """A person's request about an image of the demo, and the dialogue after it."""

    image: str
    clear: str
    ambiguous: str
    question: str
    answer: str


REQUESTS = (
    Request("mugs.png", "pick up the mug on the left", "pick up the mug",
            "the left one or the right one?", "the left one"),
    Request("yellow_blocks.png", "the yellow block on the left", "pick up the yellow block",
            "the left one or the right one?", "the right one"),
    Request("five_blocks.png", "pick up the red block", "pick up the block",
            "which color?", "the blue one"),
    Request("bananas_plate.png", "pick up the plate", "pick up the banana",
            "the left one or the right one?", "the left one"),
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class SpeedOptions:
    """The options of ``clue bench``."""

    model: str = option(DEFAULT_MODEL, "a name or a folder of a model with both adapters")
    random: str | None = option(
        None, "measure a model of this size with random weights instead", choices=RANDOM
    )
    full: bool = option(False, "measure the model, then both sizes of random weights")
    device: str = option("cpu", "device of all contenders", choices=("cpu", "cuda"))
    dtype: str | None = option(
        None,
        "of our weights; default: our own choice, on a GPU bfloat16. Transformers has float32, and"
        " bfloat16 of 3b and on a GPU",
        choices=("float32", "mixed", "bfloat16"),
    )
    doubtful_score: float | None = option(
        None,
        "score of the first view's box up to which the other views are looked at, 1: always;"
        " default: the model's",
    )
    requests: int = option(
        len(REQUESTS), "number of the demo's requests in a repetition", choices=(1, 2, 3, 4)
    )
    repeats: int = option(10, "number of repetitions", type=at_least(1))
    starts: int = option(3, "number of fresh processes of each contender, 0: none")
    threads: int = option(0, "number of CPU threads, 0 for PyTorch's own choice")
    out: Path | None = option(None, "write all figures as JSON", type=output_file(".json"))
    markdown: bool = option(False, "print Markdown tables")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of ``clue bench``."""
    add_options(parser, SpeedOptions)


def run(args: argparse.Namespace) -> int:
    """Run ``clue bench``; the exit status."""
    options = read_options(SpeedOptions, args)
    import torch

    from clue_ros.model.devices import choose_device

    device = choose_device(options.device)
    if options.threads:
        torch.set_num_threads(options.threads)
    sizes: Sequence[str | None] = (None, *RANDOM) if options.full else (options.random,)
    results = []
    for size in sizes:
        with tempfile.TemporaryDirectory() as scratch:
            results.append(_measure(options, size, Path(scratch), device))
    if options.out is not None:
        content = results[0] if len(results) == 1 else results
        options.out.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
    return 0


def _measure(
    options: SpeedOptions, size: str | None, scratch: Path, device: torch.device
) -> dict[str, Any]:
    """All figures of one model; each table is printed as soon as it is measured."""
    import torch

    from clue_ros.model.devices import MIXED, device_name

    large = size == "3b"
    ours = options.dtype or ("bfloat16" if device.type == "cuda" else "auto")
    # Of the files, and of transformers.
    dtype = "bfloat16" if ours == "bfloat16" or large else "float32"
    folder = find_model(options.model)
    if size is not None:
        from clue_ros.lab.evaluation.random_models import room_for, write_random_model

        if not room_for(scratch, size, getattr(torch, dtype)):
            raise ClueError(f"{scratch} has no room for a model of {size}: set TMPDIR to one")
        folder = write_random_model(scratch / "model", size, getattr(torch, dtype), device)
    result: dict[str, Any] = {
        "model": size or options.model,
        "dtype": ours,
        "machine": f"{platform.machine()}, {os.cpu_count()} cores",
        "device": device_name(str(device)),
        "versions": {"torch": torch.__version__, "transformers": version("transformers")},
        "threads": torch.get_num_threads(),
        "doubtful_score": options.doubtful_score,
        "requests": options.requests,
        "repeats": options.repeats,
        "load_before": os.getloadavg()[0],
    }

    def show(header: Sequence[str], lines: Sequence[Sequence[Cell]]) -> None:
        print(table(header, lines, markdown=options.markdown), end="\n\n", flush=True)

    memory.keep_pages()  # as a node does, and for all contenders
    # Before this process holds models of its own.
    starts = partial(_starts, folder, ours, dtype, options.device)
    result["start"] = starts(options.starts) if options.starts else {}
    requests = REQUESTS[: options.requests]
    bench = Bench(folder, ours, dtype, options.doubtful_score, requests, device)
    result["dtype"], result["best_dtype"] = bench.clue.dtype, bench.best_dtype
    place = f"{result['device']}, " if device.type == "cuda" else ""
    print(
        f"{result['model']} ({result['dtype']}), {place}{result['machine']},"
        f" {result['threads']} threads, load {result['load_before']:.1f} before;"
        f" {options.repeats} repetitions; best: {result['best_dtype']}\n"
    )
    if result["start"]:
        show(START_HEADER, _start_lines(result["start"]))
    result["rows"] = bench.rows(options.repeats)
    show(ROWS_HEADER, _row_lines(result["rows"]))
    if device.type == "cuda":
        result["gpu_memory"] = bench.gpu_memory()
        show(MEMORY_HEADER, [[name, *held.values()] for name, held in result["gpu_memory"].items()])
    result["costs"] = bench.costs(max(1, options.repeats // 2))
    show(COSTS_HEADER, _cost_lines(result["costs"]))
    rest = getattr(torch, dtype)
    products = torch.bfloat16 if bench.clue.dtype == MIXED else rest
    floor = result["floor"] = bench.floor(products, rest, max(1, options.repeats // 2))
    show(FLOOR_HEADER, _floor_lines(floor["parts"]))
    show((*FLOOR_HEADER, "measured, ms", "measured / least"), _floor_lines(floor["replies"]))
    print(f"{floor['gigaflops']} GFLOP/s, {floor['gigabytes_per_second']} GB/s measured")
    result["load_after"] = os.getloadavg()[0]
    print(f"load {result['load_after']:.1f} after", flush=True)
    return result


class Bench:
    """The contenders on one model folder, and the timed requests."""

    def __init__(
        self,
        folder: Path,
        ours: str,
        dtype: str,
        doubtful_score: float | None,
        requests: Sequence[Request] = REQUESTS,
        device: torch.device | None = None,
    ) -> None:
        import torch

        from clue_ros.engine import Clue
        from clue_ros.images import load_image
        from clue_ros.lab.evaluation.plain_transformers import PlainTransformers
        from clue_ros.model.quantization import give_back

        give_back()  # memory of the model's making and of earlier contenders
        self._device = device or torch.device("cpu")
        self._on_gpu = self._device.type == "cuda"
        self._doubtful_score, self._requests = doubtful_score, requests
        self.images = {r.image: load_image(demo_folder() / r.image) for r in requests}
        self._count = 0
        place = str(self._device)
        self.clue = Clue.load(folder, device=place, dtype=ours, doubtful_score=doubtful_score)
        self._tokens = {(r, asks): self._said(r, asks) for r in requests for asks in (True, False)}
        # Includes the first replies' caches; the others are not on the GPU yet.
        self._held = torch.cuda.memory_allocated() if self._on_gpu else 0
        kind = getattr(torch, dtype)
        self.plain = PlainTransformers(folder, kind, self._device)
        best = PlainTransformers(folder, kind, self._device, best=True)
        best.share_weights(self.plain)
        self.bests = {dtype: best}
        if dtype != "bfloat16":
            self.bests["bfloat16"] = PlainTransformers(
                folder, torch.bfloat16, self._device, best=True
            )
        self.best_dtype = self._faster()
        self.best = self.bests[self.best_dtype]

    def _faster(self) -> str:
        """Find by a short trial the type in which transformers at its best settings is faster."""
        if len(self.bests) == 1:
            return next(iter(self.bests))
        image, request = self.images[REQUESTS[0].image], REQUESTS[0]
        boxes = {n: self._libraries(b)["first answer, box"] for n, b in self.bests.items()}
        taken = in_turns({n: partial(box, image, request) for n, box in boxes.items()}, TRIALS)
        return min(taken, key=taken.__getitem__)

    def _said(self, request: Request, asks: bool) -> int:
        """Count our reply's tokens, its end included; plain transformers writes as many."""
        self._decide("both", asks)
        text = request.ambiguous if asks else request.clear
        reply = self.clue.reply(self.clue.look(self.images[request.image]), Dialogue(text))
        if isinstance(reply, Grounding):
            return 5 * (1 + len(reply.intermediate_boxes))
        tokenizer = self.clue.checkpoint.processor.tokenizer
        return len(tokenizer(reply.text, add_special_tokens=False)["input_ids"]) + 1

    def _decide(self, policy: str, asks: bool) -> None:
        """Reply by this policy with a question, or with a box, whatever the probability."""
        self.clue.policy, self.clue.threshold = policy, 0.0 if asks else 1.0

    def fresh(self, image: Image) -> Image:
        """Return the image with one changed pixel, so that nothing has cached it."""
        self._count += 1
        new: Image = image.copy()
        new[0, 0] = self._count & 255, self._count >> 8 & 255, self._count >> 16 & 255
        return new

    def _time(self, work: Callable[[], object]) -> float:
        """Return the seconds of some work, its GPU work included."""
        self._wait()
        start = time.perf_counter()
        work()
        self._wait()
        return time.perf_counter() - start

    def _wait(self) -> None:
        import torch

        if self._on_gpu:
            torch.cuda.synchronize(self._device)

    # The rows: seconds of each contender for one request.

    def rows(self, repeats: int) -> dict[str, Any]:
        """Each row's medians in ms, and the ratios of the contenders with their quarters."""
        plain, best = self._libraries(self.plain), self._libraries(self.best)
        seconds: dict[str, dict[str, list[float]]] = {
            row: {name: [] for name in (PLAIN, BEST, OURS)} for row in plain
        }
        turns = list(product(range(-1, repeats), plain))  # repetition -1 is not counted
        for repeat, row in with_progress(turns, "row"):
            contenders = {PLAIN: plain[row], BEST: best[row], OURS: self._ours()[row]}
            total = dict.fromkeys(contenders, 0.0)
            for request in self._requests:
                image = self.images[request.image]
                for name, timed in contenders.items():
                    total[name] += timed(self.fresh(image), request)
            if repeat >= 0:
                for name, taken in total.items():
                    seconds[row][name].append(taken / len(self._requests))
        first = seconds["first answer, box"][PLAIN]
        return {row: _compared(taken, first) for row, taken in seconds.items()}

    def gpu_memory(self) -> dict[str, dict[str, float]]:
        """MB of the GPU: what each contender holds, and the most that a reply took beside that."""
        import torch

        contenders = {
            PLAIN: self._libraries(self.plain),
            BEST: self._libraries(self.best),
            OURS: self._ours(),
        }
        held = {PLAIN: self.plain.memory_bytes(), BEST: self.best.memory_bytes(), OURS: self._held}
        out = {}
        for name, timed in contenders.items():
            before = torch.cuda.memory_allocated()
            torch.cuda.reset_peak_memory_stats()
            for row, request in product(timed, self._requests):
                timed[row](self.fresh(self.images[request.image]), request)
            most = torch.cuda.max_memory_allocated() - before
            values = {"held": held[name], "beside": most, "peak": held[name] + most}
            out[name] = {key: round(value / 1e6, 1) for key, value in values.items()}
        return out

    def _libraries(self, model: PlainTransformers) -> dict[str, Timed]:
        """Return the timed work of transformers and peft for each row."""

        def judge(image: Image, text: str) -> None:
            model.probability(image, text)

        def answer(image: Image, text: str, tokens: int) -> None:
            model.probability(image, text)
            model.reply(image, text, tokens)

        def box(image: Image, r: Request) -> float:
            return self._time(lambda: answer(image, r.clear, self._tokens[r, False]))

        def question(image: Image, r: Request) -> float:
            return self._time(lambda: answer(image, r.ambiguous, self._tokens[r, True]))

        def later(image: Image, r: Request) -> float:
            context = later_turn(r).context()
            return self._time(lambda: answer(image, context, self._tokens[r, False]))

        return {
            "p_amb, detector": lambda image, r: self._time(lambda: judge(image, r.clear)),
            "p_amb, both": lambda image, r: self._time(lambda: answer(image, r.clear, 1)),
            "first answer, box": box,
            "first answer, question": question,
            "later turn, box": later,
            "two turns": lambda image, r: question(image, r) + later(image, r),
        }

    def _ours(self) -> dict[str, Timed]:
        """Return the timed work of `Clue` for each row."""
        clue = self.clue

        def p_amb(policy: str, image: Image, r: Request) -> float:
            self._decide(policy, False)
            return self._time(lambda: clue.ambiguity(clue.look(image), r.clear))

        def first(asks: bool, image: Image, r: Request) -> float:
            self._decide("both", asks)
            text = r.ambiguous if asks else r.clear
            return self._time(lambda: clue.reply(clue.look(image), Dialogue(text)))

        def later(image: Image, r: Request) -> float:
            self._decide("both", True)
            view = clue.look(image)
            clue.reply(view, Dialogue(r.ambiguous))
            self._decide("both", False)
            return self._time(lambda: clue.reply(view, later_turn(r)))

        def both(image: Image, r: Request) -> float:
            self._decide("both", True)
            taken = self._time(lambda: clue.reply(clue.look(image), Dialogue(r.ambiguous)))
            self._decide("both", False)
            return taken + self._time(lambda: clue.reply(clue.look(image), later_turn(r)))

        return {
            "p_amb, detector": partial(p_amb, "detector"),
            "p_amb, both": partial(p_amb, "both"),
            "first answer, box": partial(first, False),
            "first answer, question": partial(first, True),
            "later turn, box": later,
            "two turns": both,
        }

    # The cost of our replies, beside the cheapest of each list.

    def costs(self, repeats: int) -> dict[str, dict[str, float]]:
        """Median ms of a first answer with a box: by views, pixels, words, turns, and batch."""
        request = REQUESTS[0]
        image = self.images[request.image]
        large = np.ascontiguousarray(np.tile(image, (3, 3, 1)))

        def answer(
            views: int = 1, pixels: Image = image, text: str = request.clear, turns: int = 0
        ) -> float:
            self._decide("both", False)
            self.clue.num_views, self.clue.doubtful_score = views, 1.0
            dialogue, new = Dialogue(text), self.fresh(pixels)
            for _ in range(turns):
                dialogue.add_question(request.question)
                dialogue.add_answer(request.answer)
            return self._time(lambda: self.clue.reply(self.clue.look(new), dialogue))

        def batch(count: int) -> float:
            checkpoint, new = self.clue.checkpoint, [self.fresh(image) for _ in range(count)]
            return self._time(lambda: checkpoint.point(checkpoint.look(*new), request.clear))

        longer = " ".join([request.clear] * 4)
        sides = f"{image.shape[1]}x{image.shape[0]}", f"{large.shape[1]}x{large.shape[0]}"
        lists: dict[str, dict[str, Callable[[], float]]] = {
            "views": {str(n): partial(answer, views=n) for n in (1, 3, 5)},
            "image": {sides[0]: answer, sides[1]: partial(answer, pixels=large)},
            "words": {
                str(len(text.split())): partial(answer, text=text)
                for text in (request.clear, longer)
            },
            "turns before": {str(n): partial(answer, turns=n) for n in (0, 1, 3)},
            "images at once, box alone": {str(n): partial(batch, n) for n in (1, 4)},
        }
        listed = with_progress(lists.items(), "list")
        found = {what: in_turns(cases, repeats) for what, cases in listed}
        self.clue.num_views, self.clue.doubtful_score = None, self._doubtful_score
        return found

    def floor(self, products: Any, rest: Any, repeats: int) -> dict[str, Any]:
        """The least ms of each part and of each reply to the first request, and what ours take.

        products: the dtype of matrix products; rest: that of the other weights.
        """
        from clue_ros.lab.evaluation.floor import Work, measure_machine, reply_parts, reply_work
        from clue_ros.lab.training.plan import ModelSizes

        checkpoint, request = self.clue.checkpoint, REQUESTS[0]
        sizes = ModelSizes.of(checkpoint.backbone.config)
        machine = measure_machine(sizes, products, self._device)

        def parts(context: str, said: int) -> dict[str, Any]:
            prompts = checkpoint.detector.prompts(checkpoint.processor, [context])
            return reply_parts(
                sizes,
                checkpoint.detector.settings.block,
                prompts.input_ids.shape[1],
                said,
                products.itemsize,
                rest.itemsize,
            )

        # Where there is one box at most, no <eos> is waited for.
        sides = self._tokens[request, False] - (checkpoint.ivg.max_boxes == 1)
        box = parts(request.clear, sides)
        most = 3 if checkpoint.box_head is None else 2  # views; beside a head, the zoomed one alone
        works = {
            ("p_amb, detector", 1): [box["look"], box["detector"]],
            ("p_amb, both", 1): [box["look"], box["detector"], box["prompt"]],
            ("first answer, question", 1): reply_work(
                parts(request.ambiguous, self._tokens[request, True])
            ),
            ("first answer, box", 1): reply_work(box),
            ("first answer, box", most): reply_work(box, most),
            ("later turn, box", 1): reply_work(
                parts(later_turn(request).context(), sides), looked=True
            ),
        }
        if "both" not in checkpoint.policies:
            del works["p_amb, both", 1]

        def timed(row: str, views: int) -> float:
            self.clue.num_views, self.clue.doubtful_score = views, 1.0
            return self._ours()[row](self.fresh(self.images[request.image]), request)

        names = {case: case[0] + (f", {case[1]} views" if case[1] > 1 else "") for case in works}
        taken = in_turns({names[case]: partial(timed, *case) for case in works}, repeats)
        self.clue.num_views, self.clue.doubtful_score = None, self._doubtful_score

        def least(*works: Work) -> dict[str, float]:
            total = asdict(sum(works, Work(0, 0)))
            return {**total, "least_ms": round(1000 * machine.seconds(*works), 4)}

        replies = {names[case]: least(*work) for case, work in works.items()}
        for name, reply in replies.items():
            reply["measured_ms"] = taken[name]
            reply["to_least"] = round(taken[name] / reply["least_ms"], 2)
        return {
            "gigaflops": round(machine.rate / 1e9, 1),
            "gigabytes_per_second": round(machine.bandwidth / 1e9, 1),
            "parts": {name: least(work) for name, work in box.items()},
            "replies": replies,
        }


def later_turn(request: Request) -> Dialogue:
    """The dialogue that an ambiguous request leads to, answered."""
    dialogue = Dialogue(request.ambiguous)
    dialogue.add_question(request.question)
    dialogue.add_answer(request.answer)
    return dialogue


def in_turns(cases: Mapping[str, Callable[[], float]], repeats: int) -> dict[str, float]:
    """Median ms of each case, one of each a repetition; the first repetition is not counted."""
    taken: dict[str, list[float]] = {name: [] for name in cases}
    for repeat in range(-1, repeats):
        for name, seconds in cases.items():
            value = seconds()
            if repeat >= 0:
                taken[name].append(value)
    return {name: round(1000 * statistics.median(values), 1) for name, values in taken.items()}


def quarters(values: Sequence[float]) -> list[float]:
    """Median, lowest and highest quarter."""
    return [round(float(np.quantile(values, q)), 3) for q in (0.5, 0.25, 0.75)]


def _compared(taken: Mapping[str, Sequence[float]], first: Sequence[float]) -> dict[str, Any]:
    """Medians in ms and the ratios of one row. first: plain transformers' first answers."""
    out: dict[str, Any] = {
        f"{name}_ms": round(1000 * statistics.median(values), 1) for name, values in taken.items()
    }
    others = {f"to_{PLAIN}": taken[PLAIN], f"to_{BEST}": taken[BEST], "to_first": first}
    for name, base in others.items():
        out[name] = quarters([a / b for a, b in zip(taken[OURS], base, strict=True)])
    return out


def _starts(folder: Path, ours: str, dtype: str, device: str, count: int) -> dict[str, Any]:
    """Seconds from the start of a process to its first answer, and the most memory that it took."""
    picture, text = str(demo_folder() / REQUESTS[0].image), REQUESTS[0].clear
    commands = {
        "plain": [START["plain"], str(folder), picture, text, "5", dtype, device],
        "ours": [START["ours"], "ground", picture, text, "--json", "--model", str(folder)],
    }
    commands["ours"] += ["--device", device, "--dtype", ours, "--force-grounding"]
    seconds: dict[str, list[float]] = {name: [] for name in commands}
    memory: dict[str, list[float]] = {name: [] for name in commands}
    for repeat in range(-1, count):  # the first one reads the files from the disk
        for name, command in commands.items():
            taken, most = time_to_first_line([sys.executable, "-m", *command])
            if repeat >= 0:
                seconds[name].append(taken)
                memory[name].append(most)
    return {
        "seconds": {name: quarters(values) for name, values in seconds.items()},
        "megabytes": {name: round(statistics.median(values)) for name, values in memory.items()},
        "to_plain": quarters([a / b for a, b in zip(seconds[OURS], seconds[PLAIN], strict=True)]),
    }


_SMALL_PARENT = """
import os, sys
print(flush=True)
sys.stdin.readline()
child = os.posix_spawn(sys.argv[2], sys.argv[2:], os.environ)
used = os.wait4(child, 0)[2].ru_maxrss
os.write(int(sys.argv[1]), str(used).encode())
"""


def time_to_first_line(command: Sequence[str]) -> tuple[float, float]:
    """Seconds to a command's first line of output, and its largest resident memory in MB.

    Linux counts the parent's memory, so a small process starts it. Python keeps bytecode, even if
    PYTHONDONTWRITEBYTECODE is set: else each start compiles the package's sources anew.
    """
    read, write = os.pipe()
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    with tempfile.TemporaryFile() as errors, open(read, "rb") as memory_used:
        process = subprocess.Popen(
            [sys.executable, "-S", "-c", _SMALL_PARENT, str(write), *command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            pass_fds=[write],
            env=environment,
        )
        os.close(write)
        assert process.stdout is not None
        assert process.stdin is not None
        with process.stdout as lines, process.stdin as go:
            lines.readline()
            start = time.perf_counter()
            go.write(b"\n")
            go.flush()
            line = lines.readline()
            taken = time.perf_counter() - start
            lines.read()
        process.wait()
        if not line:
            errors.seek(0)
            reason = errors.read().decode(errors="replace")[-500:]
            raise ClueError(f"{' '.join(command[1:4])} gave no answer: {reason}")
        return taken, int(memory_used.read()) / 1024


ROWS_HEADER = (
    *("", "plain, ms", "best, ms", "ours, ms"),
    *("ours / plain", "ours / best", "ours / plain's first answer"),
)
START_HEADER = ("fresh process", "first answer, s", "memory, MB")
COSTS_HEADER = ("our box", "", "ms", "of the first")
MEMORY_HEADER = ("GPU memory", "held, MB", "for a reply, MB", "peak, MB")
FLOOR_HEADER = ("least work", "operations, 1e9", "weights, MB", "least, ms")


def _row_lines(rows: Mapping[str, Any]) -> list[list[Cell]]:
    return [
        [
            name,
            *(row[f"{who}_ms"] for who in (PLAIN, BEST, OURS)),
            *(_range(row[f"to_{base}"]) for base in (PLAIN, BEST, "first")),
        ]
        for name, row in rows.items()
    ]


def _start_lines(start: Mapping[str, Any]) -> list[list[Cell]]:
    lines: list[list[Cell]] = [
        [name, _range(start["seconds"][name]), start["megabytes"][name]]
        for name in start["seconds"]
    ]
    return [*lines, ["ours / plain", _range(start["to_plain"]), None]]


def _cost_lines(costs: Mapping[str, Mapping[str, float]]) -> list[list[Cell]]:
    return [
        [what, case, ms, _share(ms, cases)]
        for what, cases in costs.items()
        for case, ms in cases.items()
    ]


def _floor_lines(works: Mapping[str, Mapping[str, float]]) -> list[list[Cell]]:
    return [
        [
            name,
            work["operations"] / 1e9,
            work["bytes"] / 1e6,
            *(work[key] for key in ("least_ms", "measured_ms", "to_least") if key in work),
        ]
        for name, work in works.items()
    ]


def _range(values: Sequence[float]) -> str:
    middle, low, high = values
    return f"{middle:.2f} ({low:.2f} to {high:.2f})"


def _share(ms: float, cases: Mapping[str, float]) -> float:
    return round(ms / next(iter(cases.values())), 3)
