"""The ``.sa`` language: text to a module of the ``nn`` dialect, with errors that say where."""

from starc.frontend.loading import LoadedModel, ModelSummary, load_model
from starc.quantities import QuantityError, parse_size

__all__ = ["LoadedModel", "ModelSummary", "QuantityError", "load_model", "parse_size"]
