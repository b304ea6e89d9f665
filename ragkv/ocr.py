"""Whether images and pages without text can be read: this needs OCR, an optional extra that can be switched off."""

from importlib.util import find_spec

from ragkv.settings import Settings

NOT_INSTALLED = "install ragkv[ocr] on the server to read it by OCR, or recognise its text first and upload that"
SWITCHED_OFF = "OCR is switched off (RAGKV_OCR): recognise its text first and upload that"


def no_ocr(settings: Settings) -> str:
    """Advice about an image where there is no OCR; empty where there is."""
    if not settings.ocr:
        return SWITCHED_OFF
    return NOT_INSTALLED if find_spec("rapidocr") is None or find_spec("onnxruntime") is None else ""
