"""What a model will be like, before any training: noise, replays, memory, seconds."""

from expunge.audit.forecast.facts import Forecast, Paper, Times
from expunge.audit.forecast.forecasting import forecast

__all__ = ["Forecast", "Paper", "Times", "forecast"]
