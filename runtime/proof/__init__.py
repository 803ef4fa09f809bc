"""The verifier: proves a plan from the plan alone, sharing no code with the planner."""

from graphc.runtime.plan.plan import Plan
from graphc.runtime.proof.verify import verify

Plan.prove = staticmethod(verify)
