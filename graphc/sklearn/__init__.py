"""Estimators for scikit-learn: perceptrons with its arguments, and modules of one's own."""

from graphc.sklearn.classifier import Classifier
from graphc.sklearn.mlp_classifier import MLPClassifier
from graphc.sklearn.mlp_regressor import MLPRegressor
from graphc.sklearn.regressor import Regressor

__all__ = ["Classifier", "MLPClassifier", "MLPRegressor", "Regressor"]


def __dir__() -> list[str]:
    return __all__
