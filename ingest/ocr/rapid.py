"""OCR by RapidOCR, with the PP-OCR models that its package contains: the only door to it. Nothing is downloaded.

Everything runs in the calling thread: the process that reads documents may start no other.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib.resources import files
from statistics import fmean

import cv2
import numpy as np
from numpy.typing import NDArray
from PIL import Image
from rapidocr import RapidOCR
from rapidocr.ch_ppocr_det import TextDetOutput
from rapidocr.utils.output import RapidOCROutput

from ingest.ocr.reading_order import Placed, blocks
from ingest.parse.scan import MAX_LINE_CHARS, READ_PIXELS, Box, Line, Recognised
from ragkv.text import scrub, tidy

MIN_SCORE = 0.65
_MODELS = {
    "Det.model_path": "PP-OCRv6_det_small.onnx",
    "Cls.model_path": "ch_ppocr_mobile_v2.0_cls_mobile.onnx",
    "Rec.model_path": "PP-OCRv6_rec_small.onnx",
}
_SETTINGS = {
    "Global.log_level": "critical",
    "Global.max_side_len": 100_000,  # pictures are scaled here
    "Det.limit_type": "max",
    "Det.limit_side_len": 100_000,
    "EngineConfig.onnxruntime.intra_op_num_threads": 1,
    "EngineConfig.onnxruntime.inter_op_num_threads": 1,
}
_FIND_PIXELS = 1_300_000
_MAX_ENLARGED = 2.0
_TALL = 1.5  # RapidOCR turns boxes that are this many times as tall as wide
_SURE = 0.9
_MANY = 0.3

_Pixels = NDArray[np.uint8]
_Corners = NDArray[np.float32]
"""Corners of boxes, [boxes, 4, 2]: upper left, upper right, lower right, lower left."""


@dataclass(frozen=True, slots=True)
class _Words:
    """The text of a box, its score, and the number of quarters by which it is turned clockwise."""

    text: str
    score: float
    quarters: int


class Recogniser:
    """Reads pictures in any of the four rotations. The models are loaded when it is made."""

    def __init__(self) -> None:
        models = files("rapidocr") / "models"
        self._engine = RapidOCR(params=_SETTINGS | {name: str(models / model) for name, model in _MODELS.items()})
        cv2.setNumThreads(1)
        for quarters in range(2):  # loads what is otherwise loaded with the first words, when no file can be opened
            words = cv2.putText(np.full((128, 512, 3), 255, np.uint8), "WORDS", (64, 80), 0, 2, (0, 0, 0), 4)
            self(Image.fromarray(np.rot90(words, quarters)))

    def __call__(self, picture: Image.Image) -> Recognised:
        """The text, with lines in pixels of the picture."""
        width, height = picture.size
        scale = min(math.sqrt(READ_PIXELS / (width * height)), _MAX_ENLARGED)
        pixels = _resized(np.asarray(picture.convert("RGB"))[:, :, ::-1], scale)
        small = _resized(pixels, min(1.0, math.sqrt(_FIND_PIXELS / math.prod(pixels.shape[:2]))))
        detected = self._engine(small, use_det=True, use_cls=False, use_rec=False)  # boxes around lines of text
        assert isinstance(detected, TextDetOutput | RapidOCROutput)
        if detected.boxes is None or not len(detected.boxes):
            return Recognised("", ())
        enlarged = pixels.shape[1] / small.shape[1], pixels.shape[0] / small.shape[0]
        boxes = np.asarray(detected.boxes * enlarged, np.float32)
        shown = boxes * (width / pixels.shape[1], height / pixels.shape[0])
        lengths = np.ptp(boxes, axis=1).max(axis=1)
        quarters = int(lengths[_tall(boxes)].sum() * 2 > lengths.sum())  # most of the text runs from above or below
        if quarters:  # the picture is turned anticlockwise, and the boxes with it
            turned = np.stack([boxes[..., 1], pixels.shape[1] - boxes[..., 0]], axis=-1)
            boxes = np.ascontiguousarray(np.roll(turned, -1, axis=1), np.float32)
            pixels = np.ascontiguousarray(np.rot90(pixels))
        words, upside_down = self._words(pixels, boxes, quarters)
        return _composed(words, shown, -boxes[:, [2, 3, 0, 1]] if upside_down else boxes)

    def _words(self, pixels: _Pixels, corners: _Corners, quarters: int) -> tuple[list[_Words], bool]:
        """The text of each box, and whether the picture stands on its head.

        Its lines have one direction: if many seem to stand on their heads, all are read both ways, and the surer
        reading is taken. Boxes that run down in it have their own.
        """
        crops = self._engine.crop_text_regions(pixels, corners)
        classified = self._engine.cls_and_rotate(crops)[1].cls_res or []
        flipped = np.array([label == "180" and score > _SURE for label, score in classified])
        tall = _tall(corners)
        best = self._read(crops, tall & flipped)
        upside_down = False
        if flipped[~tall].sum() > _MANY * (~tall).sum():
            other = self._read(crops, ~tall | flipped)
            upside_down = fmean(score for _, score in other) > fmean(score for _, score in best)
            best = other if upside_down else best
        turns = np.where(tall, 1 + 2 * flipped, 2 * upside_down)
        words = [
            _Words(tidy(scrub(text))[:MAX_LINE_CHARS], score, (quarters + int(turn)) % 4)
            for (text, score), turn in zip(best, turns, strict=True)
        ]
        return words, upside_down

    def _read(self, crops: Sequence[_Pixels], flipped: NDArray[np.bool_]) -> list[tuple[str, float]]:
        """Text and score of each crop, turned by a half where it is flipped."""
        recognised = self._engine.recognize_txt(
            [np.rot90(crop, 2) if flip else crop for crop, flip in zip(crops, flipped, strict=True)]
        )
        return list(zip(recognised.txts or (), recognised.scores, strict=True))


def _resized(pixels: _Pixels, scale: float) -> _Pixels:
    height, width = (max(round(side * scale), 1) for side in pixels.shape[:2])
    method = cv2.INTER_AREA if scale < 1 else cv2.INTER_CUBIC
    return np.asarray(cv2.resize(np.ascontiguousarray(pixels), (width, height), interpolation=method), np.uint8)


def _tall(corners: _Corners) -> NDArray[np.bool_]:
    across = np.linalg.norm(corners[:, 0] - corners[:, 1], axis=1)
    down = np.linalg.norm(corners[:, 0] - corners[:, 3], axis=1)
    return np.asarray(down >= _TALL * across)


def _composed(words: Sequence[_Words], shown: _Corners, upright: _Corners) -> Recognised:
    """The lines where the picture shows them, in the order in which they stand on the upright page."""
    # As if a page that was scanned at an angle lay straight.
    edges = (upright[:, 1] - upright[:, 0])[~_tall(upright)]
    slope = float(np.median(edges[:, 1] / np.maximum(edges[:, 0], 1))) if len(edges) else 0.0
    x, y = upright[..., 0], upright[..., 1]
    level = np.stack([x + slope * y, y - slope * x], axis=-1)
    placed = [
        Placed(n, *map(float, (*level[n].min(axis=0), *level[n].max(axis=0))))
        for n, word in enumerate(words)
        if word.score >= MIN_SCORE and any(map(str.isalnum, word.text))
    ]
    text, lines = "", list[Line]()
    for block in blocks(placed):
        text += "\n\n" if text else ""
        for number, row in enumerate(block):
            said = [words[item.index].text for item in row]
            # A word that was cut by a hyphen goes on: a capital or a digit would show that the hyphen is part of it.
            if number and text.endswith("-") and text[-2:-1].isalpha() and said[0][:1].islower():
                text = text[:-1]
                lines[-1] = replace(lines[-1], text=lines[-1].text[:-1])
            elif number:
                text += "\n"
            text += " ".join(said)
            for word, corners in ((words[item.index], shown[item.index]) for item in row):
                (left, top), (right, bottom) = corners.min(axis=0).tolist(), corners.max(axis=0).tolist()
                lines.append(Line(word.text, Box(left, top, right - left, bottom - top), word.quarters))
    return Recognised(text, tuple(lines))
