"""All plans that a store knows by name. That each answers what it must is checked here, by types."""

from __future__ import annotations

from expunge.solvers.plans.boosting import BoostingPlan
from expunge.solvers.plans.clusters import ClusterPlan
from expunge.solvers.plans.federated import FederatedPlan
from expunge.solvers.plans.keyed_clusters import KeyedClusterPlan
from expunge.solvers.plans.linear import Plan
from expunge.solvers.plans.newton import NewtonPlan
from expunge.solvers.plans.protocol import AnyPlan, ModelPlan
from expunge.solvers.plans.ridge import RidgePlan
from expunge.solvers.plans.sampled_features import SampledFeaturesPlan

MODEL_PLANS: tuple[type[ModelPlan], ...] = (
    Plan, NewtonPlan, ClusterPlan, KeyedClusterPlan, BoostingPlan, RidgePlan, SampledFeaturesPlan
)  # fmt: skip
PLANS: tuple[type[AnyPlan], ...] = (*MODEL_PLANS, FederatedPlan)
