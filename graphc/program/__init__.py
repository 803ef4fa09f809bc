"""Trace, compile and run: from a Python function to a program."""

from graphc.program.buckets import Buckets as Buckets
from graphc.program.compiler import compile as compile
from graphc.program.planning import make_plan_of as make_plan_of
from graphc.program.program import Program as Program
from graphc.program.sizes import SizedProgram as SizedProgram
