"""RefCOCO's layout, tiny: a sentence of each split about a grey picture of its own."""

from __future__ import annotations

import json
from pathlib import Path

from PIL import Image

SIZE = (100, 50)


def write_refcoco(folder: Path, pictures: Path, grey: int = 90) -> None:
    """Write refs and instances into `folder`, and the pictures, named after it."""
    images, annotations, refs = [], [], []
    for path in (folder, pictures):
        path.mkdir(parents=True, exist_ok=True)
    for number, split in enumerate(("train", "val", "test")):
        name = f"{folder.name}-{number}.png"
        Image.new("RGB", SIZE, (grey, grey, grey)).save(pictures / name)
        images.append({"id": number, "file_name": name, "width": SIZE[0], "height": SIZE[1]})
        annotations.append({"id": number, "image_id": number, "bbox": [10, 5, 20, 10]})
        sentence = {"raw": "the left mug", "sent": "left mug", "sent_id": number, "tokens": []}
        ref = {"image_id": number, "ann_id": number, "ref_id": number, "split": split}
        refs.append({**ref, "sentences": [sentence]})
    content = {"images": images, "annotations": annotations}
    (folder / "instances.json").write_text(json.dumps(content))
    (folder / "refs.json").write_text(json.dumps(refs))
