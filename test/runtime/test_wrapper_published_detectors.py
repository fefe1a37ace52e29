"""Grounding DINO and OWLv2 at their published widths, vocabularies and queries; RANDOM weights.

transformers' defaults are those of grounding-dino-tiny, and the values below those of
owlv2-base-patch16-ensemble. So that a forward takes seconds on a CPU, there are fewer layers of
their transformers than published (1 or 2; all of the Swin backbone), and Grounding DINO gets
pictures of a quarter of its sides.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import (
    BertTokenizerFast,
    GroundingDinoConfig,
    GroundingDinoForObjectDetection,
    GroundingDinoImageProcessorPil,
    GroundingDinoProcessor,
    Owlv2Config,
    Owlv2ForObjectDetection,
    Owlv2ImageProcessorPil,
    Owlv2Processor,
    PreTrainedTokenizerFast,
)

from clue_ros.wrapper.detectors import OpenVocabularyDetector

WIDE, TALL = (np.random.default_rng(0).integers(0, 255, (*size, 3), np.uint8)
              for size in ((480, 640), (640, 400)))  # fmt: skip
BERT = {"[PAD]": 0, "[UNK]": 100, "[CLS]": 101, "[SEP]": 102, "[MASK]": 103, ".": 1012}
BERT_WORDS = 30522


def grounding_dino() -> OpenVocabularyDetector:
    config = GroundingDinoConfig(encoder_layers=1, decoder_layers=2)
    config.text_config.num_hidden_layers = 1
    named = {number: word for word, number in (BERT | {"mug": 2001, "plate": 2002}).items()}
    words = [named.get(number, f"[unused{number}]") for number in range(BERT_WORDS)]
    tokenizer = BertTokenizerFast(vocab={word: number for number, word in enumerate(words)})
    images = GroundingDinoImageProcessorPil(size={"shortest_edge": 200, "longest_edge": 333})
    processor = GroundingDinoProcessor(images, tokenizer)
    torch.manual_seed(0)
    model = GroundingDinoForObjectDetection(config)
    return OpenVocabularyDetector(model, processor, "grounding-dino", threshold=0.0)


def owlv2() -> OpenVocabularyDetector:
    pytest.importorskip("scipy", reason="OWLv2's image processor needs scipy")
    vocabulary = {"!": 0, "a": 1, "photo": 2, "of": 3, "mug": 4, "plate": 5,
                  "<|startoftext|>": 49406, "<|endoftext|>": 49407}  # fmt: skip
    words = Tokenizer(models.WordLevel(vocabulary, unk_token="<|endoftext|>"))
    words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    words.post_processor = processors.TemplateProcessing(
        "<|startoftext|> $A <|endoftext|>",
        special_tokens=[(token, vocabulary[token]) for token in list(vocabulary)[-2:]],
    )
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=words, pad_token="!", eos_token="<|endoftext|>", model_max_length=16,
        model_input_names=["input_ids", "attention_mask"],
    )  # fmt: skip
    config = Owlv2Config(
        vision_config={"image_size": 960, "patch_size": 16, "num_hidden_layers": 1},
        text_config={"num_hidden_layers": 1},
    )
    processor = Owlv2Processor(Owlv2ImageProcessorPil(), tokenizer)
    torch.manual_seed(0)
    model = Owlv2ForObjectDetection(config)
    for weights in model.class_head.parameters():
        weights.data.mul_(0.1)  # else some scores are 0
    return OpenVocabularyDetector(model, processor, "owlv2", threshold=0.0)


@pytest.mark.parametrize(("make", "boxes"), [(grounding_dino, 900), (owlv2, 3600)])
def test_pictures_of_two_sizes_in_a_batch_have_boxes_in_their_own_pixels(
    make: Any, boxes: int
) -> None:
    detector = make()
    outputs: list[Any] = []
    detector.model.register_forward_hook(lambda module, inputs, output: outputs.append(output))
    found = detector.find_in([WIDE, TALL], ("mug", "plate"))
    (output,) = outputs
    for image, candidates, raw in zip((WIDE, TALL), found, output.pred_boxes, strict=True):
        height, width = image.shape[:2]
        if make is owlv2:  # it fills the picture up to a square
            height = width = max(height, width)
        center, size = raw[:, :2].numpy(), raw[:, 2:].numpy()
        scale = (width, height)
        corners = np.hstack([(center - size / 2) * scale, (center + size / 2) * scale])
        assert len(candidates) == boxes
        listed = np.array([c.box.as_list() for c in candidates])
        assert np.allclose(listed, corners, atol=0.1)
        assert all(0 <= c.score <= 1 for c in candidates)
        assert {w for c in candidates for w in c.label.split()} <= {"mug", "plate"}
