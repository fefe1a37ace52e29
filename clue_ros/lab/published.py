"""Published figures of the papers, to print beside ours: other models, on other data."""

from __future__ import annotations

# CLUE, Table I: accuracy, precision, recall, F1; its Dataset 1, then its Dataset 2 (100
# photographs of InViG). The last two rows are prompted models without any training.
TABLE_1 = {
    "half-last-detect-cnn": ((0.850, 0.847, 0.846, 0.846), (0.732, 0.680, 0.874, 0.765)),
    "half-last-detect-ar": ((0.729, 0.795, 0.599, 0.683), (0.674, 0.636, 0.811, 0.713)),
    "half-last-disambig-ar": ((0.874, 0.839, 0.917, 0.876), (0.763, 0.695, 0.937, 0.798)),
    "half-full-disambig-ar": ((0.912, 0.934, 0.881, 0.907), (0.826, 0.793, 0.884, 0.836)),
    "full-last-disambig-ar": ((0.701, 0.629, 0.940, 0.754), (0.632, 0.634, 0.621, 0.628)),
    "full-full-disambig-ar": ((0.893, 0.893, 0.887, 0.890), (0.647, 0.608, 0.832, 0.702)),
    "Gemma3-4B-it": ((0.487, 0.487, 1.000, 0.655), (0.500, 0.500, 1.000, 0.667)),
    "Gemma3-27B-it": ((0.609, 0.560, 0.931, 0.699), (0.479, 0.486, 0.747, 0.589)),
}

# CLUE, Table II: accuracy, precision, recall, F1 in simulation, then on real pictures. AmbResVLM's
# accuracy was not published.
TABLE_2: dict[str, tuple[tuple[float | None, ...], tuple[float | None, ...]]] = {
    "AmbResVLM": ((None, 0.52, 0.97, 0.68), (None, 0.48, 0.78, 0.59)),
    "CLUE, half-full-disambig-ar": ((0.995, 1.0, 0.989, 0.994), (0.795, 0.898, 0.644, 0.750)),
}

# CLUE, Table III: Acc@0.5 on InViG's test split.
TABLE_3 = {
    "TiO": 0.712,
    "CLUE, non-mix base (alpha 8, r 16)": 0.6319,
    "CLUE, mix base (alpha 32, r 16)": 0.7555,
    "CLUE, mix base (alpha 16, r 8)": 0.7566,
}

# CLUE, Figure 7: F1 of a CNN on block 14 of 26, the best one, and on the last block.
FIGURE_7 = {"best": 0.726, "last": 0.596}

# InViG, Tables II and III, in the order of dialogue_tasks.TEXT_COLUMNS.
INVIG_TEXT: dict[str, dict[str, tuple[float, ...]]] = {
    "vqa": {
        "XVLM 21K": (24.6, 15.8, 10.4, 7.2, 16.0, 28.3, 72.8, 49.8, 73.9, 5.0),
        "InViG-Base 21K": (26.7, 17.8, 12.1, 8.6, 16.9, 30.2, 81.9, 50.9, 75.0, 4.8),
        "InViG-Base 500K": (23.2, 14.5, 9.5, 6.7, 15.4, 22.8, 52.3, 39.7, 61.5, 7.1),
        "InViG-Base 500+21K": (27.7, 19.3, 14.0, 10.5, 17.8, 33.4, 96.2, 49.9, 74.3, 4.8),
    },
    "vqg": {
        "InViG-Base-MT 21K": (31.0, 24.9, 21.1, 18.3, 16.2, 48.2, 117.4, 38.0, 63.6, 5.8),
        "InViG-Base-BBOX 21K": (34.2, 27.1, 22.8, 19.5, 17.3, 49.2, 120.5, 49.9, 68.2, 5.4),
        "InViG-Base 21K": (34.7, 27.6, 23.1, 19.9, 17.4, 49.7, 122.2, 49.9, 67.9, 5.4),
        "InViG-Base 500K": (24.0, 15.8, 10.9, 7.9, 13.9, 38.7, 36.8, 33.1, 58.1, 6.9),
        "InViG-Base 500+21K": (34.2, 27.7, 23.5, 20.4, 17.6, 50.3, 128.2, 52.6, 74.7, 4.5),
    },
}
# InViG, Figure 9: success of I-VG among the boxes of Detic.
INVIG_SUCCESS = {"InViG-Base 21K": 0.356, "InViG-Base 500+21K": 0.456}

# InViG, README: success of I-VG among true boxes. XVLM plays the person in both.
INVIG_SUCCESS_TRUE_BOXES = {"Vilbert 21K": 0.353, "XVLM 21K": 0.401}

# InViG, text and README: M-VG by choice among true boxes.
INVIG_CHOICE = {
    "InViG-Base 500+21K, more than": 0.6,
    "Vilbert 21K (README)": 0.551,
    "XVLM 21K (README)": 0.597,
}

# LLM-wrapper: P@1 in %, val and test. GD(T), GD(B): Grounding DINO with Swin-T, Swin-B; GDrec: a
# variant of it for referring expressions; GD-1.5: Grounding DINO 1.5, an API, on 300 dialogues of
# val; Flo2: Florence-2. Fine-tuned: the detector's own weights. CRG: another method, as its authors
# reported it. None: not published.
REFERRING: dict[str, dict[str, tuple[float | None, float | None]]] = {
    "refcocog": {
        "GD(T), zero-shot": (60.09, 59.32),
        "GD(T) + Mixtral": (77.57, 77.05),
        "GD(T) + Llama 3": (78.12, 77.36),
        "Flo2, zero-shot": (67.91, 66.16),
        "Flo2 + Mixtral": (78.96, 77.69),
        "Flo2 + Llama 3": (78.76, 78.03),
        "GDrec, zero-shot": (67.61, 68.37),
        "GDrec + Llama 3": (78.25, 78.01),
        "GDrec + Flo2 + Llama 3": (81.25, 80.13),
        "GDrec, wrapper trained on Flo2": (73.90, 73.45),
        "Flo2, wrapper trained on GDrec": (73.86, 73.03),
        "GD-1.5, zero-shot (300 of val)": (47.67, None),
        "GD-1.5, wrapper trained on GDrec (300 of val)": (76.67, None),
        "GDrec, zero-shot (300 of val)": (66.00, None),
        "GDrec, wrapper trained on Flo2 (300 of val)": (74.00, None),
        "Flo2, zero-shot (300 of val)": (71.67, None),
        "Flo2, wrapper trained on GDrec (300 of val)": (75.33, None),
        "GD(B), fine-tuned, in CRG's paper": (None, 66.30),
        "GD(B), fine-tuned, + CRG": (None, 69.60),
        "GD(B), fine-tuned": (78.51, 77.99),
        "GD(B), fine-tuned, + Mixtral": (82.31, 82.15),
        "GD(B), fine-tuned, + Llama 3": (82.76, 82.61),
        "Flo2, fine-tuned": (90.32, 91.02),
        "Flo2, fine-tuned, + Mixtral": (90.40, 90.92),
        "Flo2, fine-tuned, + Llama 3": (90.50, 91.03),
    },
    "refcoco": {
        "GD(T), zero-shot": (50.69, 50.94),
        "GD(T) + Mixtral": (74.61, 73.46),
        "GD(T) + Llama 3": (74.78, 73.98),
        "Flo2, zero-shot": (55.94, 57.21),
        "Flo2 + Mixtral": (68.85, 68.21),
        "Flo2 + Llama 3": (71.74, 71.91),
        "GD(B), fine-tuned": (83.86, 84.12),
        "Flo2, fine-tuned": (93.07, 93.42),
    },
    "refcoco+": {
        "GD(T), zero-shot": (51.65, 51.79),
        "GD(T) + Mixtral": (60.32, 60.08),
        "GD(T) + Llama 3": (64.18, 63.82),
        "Flo2, zero-shot": (53.31, 54.26),
        "Flo2 + Mixtral": (57.58, 58.26),
        "Flo2 + Llama 3": (62.63, 62.73),
        "GD(B), fine-tuned": (73.46, 73.46),
        "Flo2, fine-tuned": (88.19, 88.49),
    },
    "talk2car": {
        "GD(T), zero-shot": (55.37, 58.44),
        "GD(T) + Mixtral": (64.75, 67.14),
        "GD(T) + Llama 3": (65.95, 68.61),
        "Flo2, zero-shot": (46.78, 47.53),
        "Flo2 + Mixtral": (61.65, 65.14),
        "Flo2 + Llama 3": (61.74, 65.84),
    },
    "hcrefloco": {
        "Flo2, zero-shot": (48.04, 47.39),
        "Flo2, fine-tuned on RefCOCO, + and g": (56.75, 55.62),
        "Flo2 + Llama 3 trained on RefCOCOg": (66.93, 66.45),
    },
}
