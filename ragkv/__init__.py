"""ragkv: documents are read once; questions are answered from their keys and values."""

__version__ = "0.2.0"
