"""`clue data generate --ray ADDRESS`: the annotation machine on a Ray cluster, through Ray Data.

Each worker is an actor that loads the models once for some thousand pictures. Outcomes come back to
one process, which writes them into the journal. Ray starts a worker again that has died, and its
pictures of the moment are done again; if the writing process dies, the same command goes on from
the journal. Pictures that end their worker each time are named in an error when all others are
done. Photographs must be at the same path on every machine.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

from clue_ros.errors import ClueError
from clue_ros.images import load_image
from clue_ros.lab.generation.machine import (
    DialogueMachine,
    MachineParts,
    MachineSettings,
    Outcome,
    Picture,
    talk,
)
from clue_ros.lab.ray_cluster import RaySettings, ray_at

_BLOCK = 4  # pictures that a worker does at a time, and does again if it dies
_CHUNK = 2000 * _BLOCK  # pictures given to Ray at a time; it holds an object for each block
_NAMED = 10  # pictures in an error
_RETRIES = 2  # of a block whose worker died; then of each of its pictures alone


class Worker:
    """An actor: does batches of pictures. load: makes the parts, called once."""

    def __init__(
        self, load: Callable[[], MachineParts], settings: MachineSettings, seed: int
    ) -> None:
        self._parts = load()
        self._machine = DialogueMachine(self._parts, settings)
        self._seed = seed

    def __call__(self, batch: dict[str, Any]) -> dict[str, list[Any]]:
        """name, path (text) -> name, outcome."""
        out: dict[str, list[Any]] = {"name": [], "outcome": []}
        for name, path in zip(batch["name"].tolist(), batch["path"].tolist(), strict=True):
            picture = Picture(name, partial(load_image, Path(path)))
            outcome, sums = talk(self._machine, self._parts, picture, self._seed)
            out["name"].append(name)
            out["outcome"].append({"sums": sums, **vars(outcome)})
        out["outcome"] = [json.dumps(outcome) for outcome in out["outcome"]]
        return out


def ray_outcomes(
    items: Iterable[tuple[str, Path]],
    load: Callable[[], MachineParts],
    settings: MachineSettings,
    seed: int,
    cluster: RaySettings,
) -> Iterator[tuple[tuple[str, Path], Outcome, dict[str, float]]]:
    """The outcomes of pictures (name, path), as they are done. Raises ClueError.

    A picture that has none ends its worker each time: the error at the end names it.
    """
    left = iter(items)
    chunk = dict(islice(left, _CHUNK))
    if not chunk:
        return
    failed = list[str]()
    with ray_at(cluster.address) as ray:
        # Blocks that fail are tried again below.
        ray.data.DataContext.get_current().max_errored_blocks = -1
        run = partial(_run, ray, load, settings, seed, cluster)
        while chunk:
            count = len(chunk)
            for block in (_BLOCK, 1):
                for name, outcome, sums in run(chunk, block):
                    yield (name, chunk.pop(name)), outcome, sums
            failed += chunk
            if len(chunk) == count:
                break
            chunk = dict(islice(left, _CHUNK))
    if failed:
        more = f" and {len(failed) - _NAMED} more" if len(failed) > _NAMED else ""
        raise ClueError(
            f"no outcome of {', '.join(failed[:_NAMED])}{more}: the worker failed each time, Ray's"
            " log has the reason. The same command tries them again; take them out of IMAGES to"
            " leave them out"
        )


def _run(
    ray: Any,
    load: Callable[[], MachineParts],
    settings: MachineSettings,
    seed: int,
    cluster: RaySettings,
    pictures: Mapping[str, Path],
    block: int,
) -> Iterator[tuple[str, Outcome, dict[str, float]]]:
    """The outcomes of the pictures whose workers lived."""
    rows = [{"name": name, "path": str(path.resolve())} for name, path in pictures.items()]
    if not rows:
        return
    found = ray.data.from_items(rows, override_num_blocks=-(-len(rows) // block)).map_batches(
        Worker,
        fn_constructor_args=(load, settings, seed),
        batch_size=block,
        # One block a worker: those that wait for it would lose a retry when it dies.
        compute=ray.data.ActorPoolStrategy(size=cluster.workers, max_tasks_in_flight_per_actor=1),
        num_gpus=cluster.gpus,
        max_restarts=-1,
        max_task_retries=_RETRIES,
    )
    for row in found.iter_rows():
        told = json.loads(row["outcome"])
        outcome = Outcome(
            told["refs"], tuple(told["size"]), Counter(told["rejected"]), Counter(told["dropped"])
        )
        yield row["name"], outcome, told["sums"]
