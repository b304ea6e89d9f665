"""Logs, metrics, traces."""

from typing import Literal

LogFormat = Literal["auto", "json", "console"]
"""auto: for people on a terminal, JSON anywhere else."""
LogLevel = Literal["debug", "info", "warning", "error"]
