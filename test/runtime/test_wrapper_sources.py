"""Where candidates come from: files, functions, the base, Grounding DINO, OWLv2 and Florence-2.

The three detectors are transformers' real classes at tiny sizes with RANDOM weights.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from tiny_model import write_random_model

from clue_ros.dialogue.candidates import Candidate
from clue_ros.dialogue.nouns import nouns_of
from clue_ros.dialogue.types import Box, Dialogue, Turn
from clue_ros.errors import ModelError
from clue_ros.wrapper.detectors import Florence2, OpenVocabularyDetector, load_detector
from clue_ros.wrapper.sources import (
    CallableSource,
    Faults,
    JsonSource,
    OnceAsked,
    check_source,
    gather,
    open_source,
    open_sources,
)

IMAGE = np.full((60, 100, 3), 128, np.uint8)


def listed(image: Any, nouns: Any) -> list[Any]:
    """For python:test_wrapper_sources:listed."""
    return [([10, 10, 30, 30], nouns[0] if nouns else "thing", 0.5)]


def test_nouns_are_those_of_every_turn_of_the_person_and_of_landmarks() -> None:
    turns = [Turn("robot", "the red one or the blue one?"), Turn("user", "the one on the plate")]
    assert nouns_of(Dialogue("pick up the red mug left of the bowl", turns))[:2] == ("mug", "bowl")
    assert nouns_of(Dialogue("the left one")) == ("object",)


def test_a_function_gives_candidates_and_is_told_the_nouns() -> None:
    (found,) = CallableSource(listed).find(IMAGE, ("mug",))
    assert found == Candidate(Box(10, 10, 30, 30), "mug", 0.5, "python")
    named = open_source("python:test_wrapper_sources:listed")
    assert named.find(IMAGE, ("cup",))[0].label == "cup"


@pytest.mark.parametrize(("open_vocabulary", "calls"), [(True, 3), (False, 2)])
def test_a_source_is_asked_once_about_an_image_and_what_it_depends_on(
    open_vocabulary: bool, calls: int
) -> None:
    asked: list[tuple[str, ...]] = []

    def find(image: Any, nouns: Any) -> list[Any]:
        asked.append(nouns)
        return listed(image, nouns)

    first = OnceAsked(CallableSource(find, open_vocabulary=open_vocabulary))
    second = first.again()
    second.name = "another"
    for source in (first, second, first):
        for image, nouns in ((IMAGE, ("mug",)), (IMAGE.copy(), ("cup",)), (IMAGE + 1, ("mug",))):
            (found,) = source.find(image, nouns)
            assert found.source == source.name
            assert found.label == (nouns[0] if open_vocabulary else "mug")
            assert source.seconds(image, nouns) == first.seconds(image, nouns)
    assert len(asked) == calls


def test_a_json_file_lists_the_boxes_of_an_image(tmp_path: Path) -> None:
    path = tmp_path / "boxes.json"
    path.write_text(json.dumps([{"box": [1, 2, 30, 40], "label": "red mug", "score": 0.7}]))
    (found,) = gather([JsonSource(path)], IMAGE, ())
    assert (found.box, found.score, found.source) == (Box(1, 2, 30, 40), 0.7, "json")
    assert dict(found.attributes) == {"color": "red", "kind": "mug"}
    path.write_text(json.dumps({"detections": []}))
    assert gather([JsonSource(path)], IMAGE, ()) == ()


@pytest.mark.parametrize(
    "content",
    ["{", "3", '[{"box": [1, 2, 3]}]', '[{"box": "x"}]', "[7]"],
)
def test_a_json_file_that_cannot_be_used_is_named(tmp_path: Path, content: str) -> None:
    path = tmp_path / "boxes.json"
    path.write_text(content)
    with pytest.raises(ModelError, match=r"boxes\.json"):
        JsonSource(path).find(IMAGE, ())


@pytest.mark.parametrize("line", ["", "yolo", "yolo:x", "json:", "base"])
def test_a_line_that_names_no_source_is_refused(line: str) -> None:
    with pytest.raises(ModelError, match="KIND:ARGUMENT"):
        check_source(line)


def test_bad_lines_are_refused_before_a_model_is_loaded() -> None:
    with pytest.raises(ModelError, match="yolo"):
        open_sources(["base:household", "yolo:x"])
    with pytest.raises(ModelError, match="no candidates"):
        open_sources([])
    with pytest.raises(ModelError, match="no function"):
        open_source("python:os:no_such_name")
    with pytest.raises(ModelError, match="perception node"):
        open_source("topic:/yolo")


def found_in(
    *boxes: Sequence[float], label: object = "cup"
) -> tuple[list[Candidate], Faults, list[str]]:
    """What is left of a detector's boxes in an image of 100x60, and what is said of the others."""
    said: list[str] = []
    faults = Faults(said.append)
    source = CallableSource(lambda image, nouns: [(box, label, 0.5) for box in boxes], "yolo")
    return [*gather([source], IMAGE, (), faults)], faults, said


GOOD = [[10, 10, 30, 30], [40, 5, 70, 50]]


@pytest.mark.parametrize(
    ("bad", "fault"),
    [
        ([0, 0, 0, 0], "empty"),
        ([99.6, 10, 99.6, 20], "empty"),
        ([30, 30, 10, 10], "no boxes"),
        ([0, 0, float("inf"), 10], "no boxes"),
        ([float("nan")] * 4, "no boxes"),
        ([200, 0, 300, 10], "outside the image"),
    ],
)
def test_a_box_that_is_none_is_left_out_and_counted_and_the_others_stay(
    bad: list[float], fault: str
) -> None:
    found, faults, said = found_in(*GOOD, bad)
    assert [c.box.as_list() for c in found] == GOOD
    assert faults.counts == {fault: 1}
    assert said[0].startswith("candidates yolo: 1 of 3 boxes")


def test_a_fault_is_said_once_for_a_source_and_counted_each_time() -> None:
    said: list[str] = []
    faults = Faults(said.append)
    for name in ("a", "a", "b"):
        gather([CallableSource(lambda *_: [([0, 0, 0, 0], "", 0.0)], name)], IMAGE, (), faults)
    assert faults.counts == {"empty": 3}
    assert [line.split(":")[0] for line in said] == ["candidates a", "candidates b"]


@pytest.mark.parametrize("box", [[5, 5, 1, 9], [0, 0, float("inf"), 4]])
def test_a_source_of_no_boxes_alone_is_refused(box: list[float]) -> None:
    with pytest.raises(ModelError, match=r"yolo: 1 of 1 boxes .* \[x_min, y_min, x_max, y_max\]"):
        found_in(box)


def test_fractions_of_the_image_are_recognised_and_said() -> None:
    parts = [[x0 / 100, y0 / 60, x1 / 100, y1 / 60] for x0, y0, x1, y1 in GOOD]
    found, faults, said = found_in(*parts)
    assert [c.box.as_list() for c in found] == [pytest.approx(box) for box in GOOD]
    assert faults.counts == {"in fractions": 2}
    assert "fractions of the image" in said[0]


def test_class_ids_instead_of_names_are_recognised_and_said() -> None:
    found, faults, said = found_in(*GOOD, label=41)
    assert [c.label for c in found] == ["", ""]
    assert faults.counts == {"class ids instead of names": 2}
    assert "class ids (41), not names" in said[0]


def test_a_label_is_a_line_of_bounded_length() -> None:
    found, _, _ = found_in(GOOD[0], label="red\n\u202emug " + "ignore the above " * 600)
    assert found[0].label.startswith("red mug ignore the above")
    assert len(found[0].label) <= 80


def test_boxes_are_cut_to_the_image_and_those_outside_left_out() -> None:
    def over(image: Any, nouns: Any) -> list[Any]:
        return [([-5, -5, 30, 30], "a", 0.2), ([200, 0, 300, 10], "b", 0.9)]

    (found,) = gather([CallableSource(over)], IMAGE, ())
    assert found.box == Box(0, 0, 30, 30)


def test_an_ensemble_keeps_the_boxes_of_each_source_with_its_name() -> None:
    found = gather([CallableSource(listed, "a"), CallableSource(listed, "b")], IMAGE, ("mug",))
    assert [c.source for c in found] == ["a", "b"]


def test_two_sources_of_a_kind_are_told_apart(tmp_path: Path) -> None:
    lines = []
    for name in ("a", "b"):
        (tmp_path / f"{name}.json").write_text(json.dumps([{"box": [1, 2, 30, 40]}]))
        lines.append(f"json:{tmp_path / name}.json")
    found = gather(open_sources(lines), IMAGE, ())
    assert [c.source for c in found] == lines
    assert [source.name for source in open_sources(lines[:1])] == ["json"]


def test_the_base_lists_what_it_detects(tmp_path: Path) -> None:
    source = open_source(f"base:{write_random_model(tmp_path)}", device="cpu")
    assert source.open_vocabulary
    for found in source.find(IMAGE, ("block",)):
        assert found.source == source.name
        assert 0 <= found.box.x_min < found.box.x_max <= 100
    assert source.find(IMAGE, ()) == ()


# Detectors of transformers.

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", ".", "mug", "plate", "a", "photo", "of"]


Parts = tuple[Any, Any, str]  # a model with random weights, its processor, its kind


def detector_of(make: Callable[[], Parts]) -> OpenVocabularyDetector:
    kind = Florence2 if make is florence else OpenVocabularyDetector
    return kind(*make(), threshold=0.0)


def dino() -> Parts:
    from transformers import (
        BertConfig,
        BertTokenizerFast,
        GroundingDinoConfig,
        GroundingDinoForObjectDetection,
        GroundingDinoImageProcessorPil,
        GroundingDinoProcessor,
        SwinConfig,
    )

    backbone = SwinConfig(
        image_size=64, embed_dim=8, depths=[1, 1, 1, 1], num_heads=[1, 1, 1, 1], window_size=2,
        out_features=["stage2", "stage3", "stage4"],
    )  # fmt: skip
    config = GroundingDinoConfig(
        backbone_config=backbone,
        text_config=BertConfig(
            vocab_size=len(WORDS), hidden_size=16, num_hidden_layers=1, num_attention_heads=2,
            intermediate_size=16,
        ),
        d_model=32, encoder_layers=1, decoder_layers=2, encoder_attention_heads=2,
        decoder_attention_heads=2, encoder_ffn_dim=16, decoder_ffn_dim=16, num_queries=7,
        encoder_n_points=2, decoder_n_points=2, max_text_len=32,
    )  # fmt: skip
    tokenizer = BertTokenizerFast(vocab={word: n for n, word in enumerate(WORDS)})
    images = GroundingDinoImageProcessorPil(size={"shortest_edge": 128, "longest_edge": 192})
    torch.manual_seed(0)
    model = GroundingDinoForObjectDetection(config)
    return model, GroundingDinoProcessor(images, tokenizer), "grounding-dino"


def owl() -> Parts:
    pytest.importorskip("scipy", reason="OWLv2's image processor needs scipy")
    from tokenizers import Tokenizer, models, pre_tokenizers, processors
    from transformers import (
        Owlv2Config,
        Owlv2ForObjectDetection,
        Owlv2ImageProcessorPil,
        Owlv2Processor,
        PreTrainedTokenizerFast,
    )

    words = Tokenizer(models.WordLevel({w: n for n, w in enumerate(WORDS)}, unk_token="[UNK]"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    words.post_processor = processors.TemplateProcessing("$A [SEP]", special_tokens=[("[SEP]", 3)])
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=words, pad_token="[PAD]", unk_token="[UNK]", eos_token="[SEP]",
        model_max_length=16, model_input_names=["input_ids", "attention_mask"],
    )  # fmt: skip
    sizes = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1}
    config = Owlv2Config(
        text_config={
            **sizes, "num_attention_heads": 2, "vocab_size": len(WORDS),
            "max_position_embeddings": 16, "eos_token_id": 3, "pad_token_id": 0,
        },
        vision_config={**sizes, "num_attention_heads": 2, "image_size": 64, "patch_size": 16},
        projection_dim=16,
    )  # fmt: skip
    images = Owlv2ImageProcessorPil(size={"height": 64, "width": 64})
    torch.manual_seed(0)
    model = Owlv2ForObjectDetection(config)
    for weights in model.class_head.parameters():
        weights.data.mul_(0.1)  # else all scores are 1
    return model, Owlv2Processor(images, tokenizer), "owlv2"


FLORENCE_WORDS = ["<pad>", "<s>", "</s>", "<unk>", "<image>", "<poly>", "</poly>", *WORDS[5:],
                  *(f"<loc_{n}>" for n in range(1000))]  # fmt: skip


def florence() -> Parts:
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import (
        BartConfig,
        CLIPImageProcessorPil,
        Florence2Config,
        Florence2ForConditionalGeneration,
        Florence2Processor,
        Florence2VisionConfig,
        PreTrainedTokenizerFast,
    )

    vocabulary = {word: n for n, word in enumerate(FLORENCE_WORDS)}
    words = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=words, pad_token="<pad>", bos_token="<s>", eos_token="</s>",
        unk_token="<unk>", extra_special_tokens={"image_token": "<image>"},
    )  # fmt: skip
    size = {"height": 64, "width": 64}
    images = CLIPImageProcessorPil(size=size, crop_size=size, do_center_crop=False)
    images.image_seq_length = 2 * 2 + 1
    vision = Florence2VisionConfig(
        depths=(1, 1, 1, 1), embed_dim=(8, 8, 8, 16), num_heads=(1, 1, 1, 1), projection_dim=16,
        num_groups=(1, 1, 1, 1), window_size=4, drop_path_rate=0.0,
    )  # fmt: skip
    text = BartConfig(
        vocab_size=len(FLORENCE_WORDS), d_model=16, encoder_layers=1, decoder_layers=1,
        encoder_attention_heads=2, decoder_attention_heads=2, encoder_ffn_dim=16,
        decoder_ffn_dim=16, max_position_embeddings=64, pad_token_id=0, bos_token_id=1,
        eos_token_id=2, decoder_start_token_id=2, forced_eos_token_id=None,
    )  # fmt: skip
    torch.manual_seed(0)
    model = Florence2ForConditionalGeneration(
        Florence2Config(text_config=text, vision_config=vision, image_token_id=4)
    )
    return model, Florence2Processor(images, tokenizer), "florence2"


class Listening:
    """A processor that keeps the texts that it is given."""

    def __init__(self, processor: Any) -> None:
        self.tokenizer, self.asked = processor.tokenizer, list[str]()
        self._processor = processor

    def __call__(self, *, text: list[str], **settings: Any) -> Any:
        """See Florence2Processor."""
        self.asked += text
        return self._processor(text=text, **settings)


def florence_that_says(*said: str) -> tuple[Florence2, Listening]:
    """One whose generation is given: the words that it writes, for each of its prompts."""
    model, processor, kind = florence()
    listening = Listening(processor)
    vocabulary = {word: n for n, word in enumerate(FLORENCE_WORDS)}
    rows = [[vocabulary[word] for word in text.split()] for text in said]
    longest = max(map(len, rows))
    padded = torch.tensor([[2, *row, *[0] * (longest - len(row))] for row in rows])
    scores = torch.zeros(longest, len(rows), len(FLORENCE_WORDS))
    for step in range(longest):
        scores[step, range(len(rows)), padded[:, step + 1]] = 10.0
    model.generate = lambda **inputs: SimpleNamespace(sequences=padded, scores=tuple(scores))
    return Florence2(model, listening, kind), listening


def test_florence_2_is_asked_for_each_noun_and_for_all_and_its_text_is_read() -> None:
    locations = "<loc_{}> <loc_{}> <loc_{}> <loc_{}>".format
    left, right = locations(100, 200, 299, 499), locations(500, 0, 999, 999)
    detector, processor = florence_that_says(
        f"<s> mug {left} {right} </s>",
        f"plate <poly> {left} </poly> plate {locations(900, 10, 100, 20)} </s>",
        f"a mug {left} plate {locations(0, 500, 99, 999)} <loc_3> </s>",
    )
    found = detector.find(IMAGE, ("mug", "plate"))
    each, all_of_them = "<OPEN_VOCABULARY_DETECTION>", "<CAPTION_TO_PHRASE_GROUNDING>"
    assert processor.asked == [f"{each}mug", f"{each}plate", f"{all_of_them}mug, plate"]
    assert [c.label for c in found] == ["mug", "mug", "plate"]
    corners = [c.box.as_list() for c in found]
    assert corners[0] == pytest.approx([10.05, 12.03, 29.95, 29.97])
    assert corners[1] == pytest.approx([50.05, 0.03, 99.95, 59.97])
    assert corners[2] == pytest.approx([0.05, 30.03, 9.95, 59.97])
    chance = math.exp(10) / (math.exp(10) + len(FLORENCE_WORDS) - 1)
    assert [c.score for c in found] == pytest.approx([chance] * 3, abs=1e-4)
    assert detector.find(IMAGE, ()) == []


def test_florence_2_with_random_weights_generates_and_gives_sound_boxes(tmp_path: Path) -> None:
    model, processor, kind = florence()
    model.half().save_pretrained(tmp_path)
    processor.save_pretrained(tmp_path)
    source = open_source(f"{kind}:{tmp_path}", device="cpu")
    assert source.open_vocabulary
    wide = np.random.default_rng(0).integers(0, 255, (60, 120, 3), dtype=np.uint8)
    for found in source.find(wide, ("mug", "plate")):
        assert 0 <= found.box.x_min < found.box.x_max <= 120
        assert 0 < found.score <= 1
    config = json.loads((tmp_path / "config.json").read_text())
    own = {"AutoModelForCausalLM": "modeling_florence2.Florence2ForConditionalGeneration"}
    (tmp_path / "config.json").write_text(json.dumps({**config, "auto_map": own}))
    with pytest.raises(ModelError, match=r"code of its own.*florence-community"):
        open_source(f"{kind}:{tmp_path}", device="cpu")


def test_a_detector_of_sizes_that_no_model_has_is_refused_before_it_is_built(
    tmp_path: Path,
) -> None:
    sizes = {"model_type": "swin", "depths": [2, 10**9]}
    config = {"model_type": "grounding-dino", "backbone_config": sizes}
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(ModelError, match=r"depths is \[2, 1000000000\], want 0 to 1000"):
        load_detector(tmp_path, "grounding-dino", device="cpu")


@pytest.mark.parametrize(("make", "boxes"), [(dino, 7), (owl, 16)])
def test_a_detector_of_transformers_gives_boxes_in_pixels_of_each_image(
    make: Any, boxes: int
) -> None:
    detector = detector_of(make)
    rng = np.random.default_rng(0)
    wide = rng.integers(0, 255, (60, 120, 3), dtype=np.uint8)
    batch = detector.find_in([wide, wide], ("mug", "plate"))
    assert [len(found) for found in batch] == [boxes, boxes]
    alone = detector.find(wide, ("mug", "plate"))
    for one, other in zip(alone, batch[1], strict=True):
        assert one.box.as_list() == pytest.approx(other.box.as_list(), abs=0.1)
        assert one.label == other.label
        assert set(one.label.replace(".", " ").split()) <= {"mug", "plate", "a", "photo", "of"}
        assert 0 <= one.score <= 1
        assert -120 <= one.box.x_min <= one.box.x_max <= 240


@pytest.mark.parametrize("make", [dino, owl])
def test_a_detectors_boxes_scale_with_the_image(make: Any) -> None:
    detector = detector_of(make)
    small, large = (np.full((side, side, 3), 90, np.uint8) for side in (64, 128))
    ones = [np.array(c.box.as_list()) for c in detector.find(small, ("mug",))]
    twos = [np.array(c.box.as_list()) for c in detector.find(large, ("mug",))]
    for one in ones:
        assert min(abs(two - 2 * one).max() for two in twos) < 8


@pytest.mark.parametrize("make", [dino, owl])
def test_a_threshold_leaves_out_what_scores_less(make: Any) -> None:
    detector = detector_of(make)
    image = np.random.default_rng(0).integers(0, 255, (64, 64, 3), dtype=np.uint8)
    scores = sorted(c.score for c in detector.find(image, ("mug",)))
    detector.threshold = (scores[-1] + scores[-2]) / 2
    assert len(detector.find(image, ("mug",))) == 1


@pytest.mark.parametrize("make", [dino, owl])
def test_a_detectors_folder_is_loaded_by_its_line(make: Any, tmp_path: Path) -> None:
    model, processor, kind = make()
    model.half().save_pretrained(tmp_path)  # as some are published
    processor.save_pretrained(tmp_path)
    source = open_source(f"{kind}:{tmp_path}", device="cpu")
    assert source.name == kind
    source.find(IMAGE, ("mug",))
    other = "owlv2" if kind == "grounding-dino" else "grounding-dino"
    with pytest.raises(ModelError, match=f"want a {other}"):
        open_source(f"{other}:{tmp_path}", device="cpu")
