"""What a model will be like, before any training: noise, replays, memory, seconds."""

from expunge.forecast.facts import Forecast, Paper, Times
from expunge.forecast.forecasting import forecast

__all__ = ["Forecast", "Paper", "Times", "forecast"]
